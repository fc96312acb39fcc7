#!/usr/bin/env bash
# The one entrance: ./run.sh init | plan | run | status | show | verify | demo | soak | test | prove | setup ...
# Sets up what is missing (Java, an environment, jars, an archive of classes), once, then hands over to kafka-daily.
# Touches nothing but KAFKA_DAILY_HOME (default: .kafka-daily beside this file) and pip's own cache, and downloads nothing
# once set up.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
home=$(readlink -m "${KAFKA_DAILY_HOME:-$here/.kafka-daily}")
log=$home/setup.log
command=${1-}
needs=(java env spark classes)
case " $* " in
  " setup env ") needs=(env) ;;
  " test "* | " prove "* | " setup test ") needs+=(tools broker) ;;
  " demo "* | " soak "* | " setup demo "* | " setup soak "*) needs+=(broker) ;;
esac

say() { (trap '' PIPE && printf 'set-up: %s\n' "$*" >&2) || true; } # nobody may be there to hear it
die() { say "$@" && exit 2; }

# ---------------------------------------------------------------- what is there

sum() { sha256sum | cut -c1-12; }
# The pins, and the places: an environment points into its checkout, and its programs name its own folder.
# By name: the order of what a pattern finds is that of the user's language, and cron has another than a terminal.
pins=$({ printf '%s\n' "$here" "$home" && sed '/^\[tool\.uv/,$d' "$here/pyproject.toml" &&
  cat "$here"/conf/{lock/{build,run,test}.txt,ivy.xml,ivysettings.xml}; } | sum)
venv=$home/venv-$pins

stamp_of() { # sets the file that shows that a part is whole; that of jars goes with them
  case $1 in
    spark | broker) stamp=$venv/jars/$1/.stamp ;;
    *) stamp=$venv/.$1-stamp ;;
  esac
}

stamped() {
  stamp_of "$1"
  case $1 in
    java) java_known && { [[ $command != setup || ! -w $home ]] || java_remembered; } ;; # what cannot be kept is as it is
    env) [[ -x $venv/bin/python && -f $stamp ]] ;; # a Python that is gone leaves a link to nothing
    *) [[ -f $stamp ]] ;;
  esac
}

complete() { # all that is needed is there
  local part
  for part in "${needs[@]}"; do stamped "$part" || return 1; done
}

# ---------------------------------------------------------------- Java and Python

# Spark 4.0 runs on 17 and 21; from 24 on Java lacks what its Hadoop asks for.
java_fits() {
  [[ -x $1/bin/java ]] || return 1
  local version
  version=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$1/release" 2>/dev/null) || true
  [[ -n $version ]] || version=$("$1/bin/java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
  [[ -n $version ]] && ((version >= 17 && version < 24))
}

java_known() { # sets java_home from JAVA_HOME, else from the last set-up
  if [[ -n ${JAVA_HOME-} ]] && java_fits "$JAVA_HOME"; then
    java_home=$JAVA_HOME
  else # one without certificates may be one that cannot fetch jars: another is taken, where there is one
    [[ -s $home/java-home ]] && java_home=$(<"$home/java-home") && java_fits "$java_home" &&
      { java_trusts "$java_home" || [[ -d $venv/jars/spark ]] || { jars_came && ! (java_search); }; }
  fi
}

jars_came() { # before an update
  local jars
  for jars in "$home"/venv-*/jars/spark; do [[ ! -d $jars ]] || return 0; done
  return 1
}

java_trusts() { [[ -s $1/lib/security/cacerts ]]; }

java_remembered() { [[ -s $home/java-home && $(<"$home/java-home") -ef $java_home ]]; }

java_search() {
  local of_path
  of_path=$(java -XshowSettings:properties -version 2>&1 | sed -n 's/^ *java\.home = //p') || true # it may be a shim
  for java_home in ${of_path:+"$of_path"} /usr/lib/jvm/*; do
    # without certificates apt was killed over it, and no jar could be fetched
    java_fits "$java_home" && java_trusts "$java_home" && return
  done
  return 1
}

find_java() {
  java_search || apt_install java_search {openjdk-17,openjdk-21,default}-jre-headless ||
    die "Java 17 to 23 with its certificates (lib/security/cacerts) is needed; JAVA_HOME, the path and /usr/lib/jvm have" \
      "none that fits. Install one (Debian, Ubuntu:" \
      "apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one. apt-get: ${cause:-not tried}"
  say "Java: $java_home"
}

fits='import os, sys
if not (3, 11) <= sys.version_info < (3, 14):
    sys.exit("Python %d.%d" % sys.version_info[:2])
import ctypes, ensurepip, ssl, venv, zlib
print(os.path.realpath(sys.executable))'

python_search() { # the first Python that fits; else sets unfit to those found, with version or what they lack
  local candidate answer
  unfit=
  for candidate in python3{,.13,.12,.11} ~/.pyenv/versions/3.1[123].*/bin/python3; do
    candidate=$(command -v "$candidate") || continue
    answer=$("$candidate" -I -c "$fits" 2>&1) && python=${answer##*$'\n'} && return # before it, what a shim warns of
    unfit+="${unfit:+, }$candidate (${answer##*$'\n'})"
  done
  return 1
}

find_python() {
  # the system's own, for which python3-venv is, may be too old or too new
  python_search || apt_install python_search python3-venv python3.{13,12,11}-venv ||
    die "Python 3.11, 3.12 or 3.13 with venv is needed; on the path and in ~/.pyenv there is ${unfit:-none}." \
      "Install one of these (Debian, Ubuntu: venv is in python3-venv). apt-get: ${cause:-not tried}"
}

# ---------------------------------------------------------------- installing

apt_install() { # $1: what succeeds once one of these packages, which are tried in turn, is there
  [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
  # dpkg wants the system's own programs, which cron's path does not have.
  local -x PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive
  local package found=$1 stale='' apt=(apt-get -o DPkg::Lock::Timeout=300)
  LC_ALL=C again dpkg --configure -a || true # what was killed while it installed leaves apt no way on
  # One list of many may be gone, and no timeout is for the lists' own lock. In the user's language no cause is known again.
  LC_ALL=C again "${apt[@]}" update -o APT::Update::Error-Mode=any || stale=$cause
  for package in "${@:2}"; do
    say "installing $package with apt-get"
    LC_ALL=C again "${apt[@]}" install -y --no-install-recommends "$package" || {
      [[ $cause != *'dpkg frontend lock'* ]] || return 1 # it was waited for, and is held still
      continue
    }
    ! "$found" || return 0
    cause="$package does not help"
  done
  cause=${stale:-$cause}
  return 1
}

# The line of a program's output that says why it failed: the last with an error of its own, else the last with a
# warning or pip's word that it found nothing, else the last. What only says that something else failed is passed over.
why() {
  awk '!NF || /(note|hint|Picked up .*): |See above|Encountered error|No matching distribution|Could not build|Some index files/ { next }
    /USE VERBOSE OR DEBUG|FAILED DOWNLOADS|Could not create the Java|A fatal exception has/ { next }
    /subprocess-exited|-unavailable$|metadata-generation|failed-wheel|[Ff]ailed (building|to build)/ { next }
    { gsub(/\/\/[^ ]*@/, "//"); gsub(/:\/[^ \/][^ ]*@/, ":/"); sub(/ to integer value as .*/, "") } # passwords; the last may be part of one
    { sub(/^[^A-Za-z\/]+/, ""); if ($0) last = $0 }
    /Could not find a version|[a-z]Warning: |Unable to lock directory/ { lesser = $0; next }
    /CLIENT ERROR: Not Found url=.*\.jar$|NOT FOUND  \]/ { lesser = $0; next } # Ivy asks for jars that a module need not have
    /([Ee]rror|ERROR|^E|Exception): |[Nn]o space|[Dd]enied|broken by|access error|^Host|FAILED|no section headers|parsing errors|requires authentication|not a trusted/ { error = $0 }
    END { print error ? error : lesser ? lesser : last }'
}

again() { # a command, tried again where it was the network that failed, or another's lock; sets cause
  local attempt start code lock='(get|to) lock |lock directory'
  # to an older pip a download that was cut short is one of another hash
  local passing="$lock|connect|time.?out|timed out|resol|reset|broken|incomplete|access error|fetch|^host |match the hashes"
  passing+='|too many requests|unavailable|bad gateway|content length|invalid (sha1|md5)'
  for attempt in {1..30}; do
    start=$(wc -l <"$log")
    code=0
    "$@" </dev/null >>"$log" 2>&1 || code=$?
    ((code)) || return 0
    cause=$(tail -n "+$((start + 1))" "$log" | why)
    ((code <= 128 && attempt < 30)) && [[ ${cause,,} =~ $passing ]] || break
    [[ ${cause,,} =~ $lock ]] || ((attempt < 3)) || break
    ((attempt > 3)) || say "trying again in $((attempt * 4)) s: $cause"
    sleep $((attempt < 4 ? attempt * 4 : 10))
  done
  if ((code == 120)) || [[ $cause == 'Logging error'* ]]; then # what Python does where its words find no room
    cause="$1 could not write all of its words to $log; there may have been no space left"
    return 1
  fi
  [[ -n $cause ]] && ((code <= 128)) || cause="$1 ended with code $code; its last words: ${cause:-none}"
  return 1
}

stopped() {
  say "$cause"
  die "It stopped at that; $log has all of it. What is there is kept: run this again once the cause is gone."
}

must() { again "$@" || stopped; }

# The user's pip settings, in variables or files, say where packages come from. All others are passed over: what would
# install elsewhere, or something else than the lock says.
sources='import shlex, sys
from pip._internal.configuration import Configuration  # what "pip config list" prints says not which file holds
kept = """index-url pypi-url extra-index-url no-index find-links trusted-host cert client-cert proxy no-proxy-env
keyring-provider timeout default-timeout retries cache-dir no-cache-dir use-feature use-deprecated""".split()
read = Configuration(isolated=False)
try:
    read.load()
except Exception as error:
    sys.exit(str(error))
settings = {}
for name, value in read.items():  # from 25.2 on a name is a file, and the value what that file says
    settings |= value if isinstance(value, dict) else {name: value}
found = {}
for section in ("global", "install", ":env:"):  # the later one holds, as for pip
    for name, value in settings.items():
        key = name.removeprefix(section + ".")
        if name != key in kept:
            found[key] = value or found.get(key, "")  # one that is empty holds nowhere
for name, value in found.items():
    print("export PIP_" + name.replace("-", "_").upper() + "=" + shlex.quote(value))'

pip_settings() {
  local name found
  found=$("$venv/bin/python" -I -c "$sources" 2>>"$log") || {
    cause=$(why <"$log")
    stopped
  }
  for name in "${!PIP_@}"; do unset "$name"; done
  eval "$found"
  export PIP_CONFIG_FILE=/dev/null
  pip_set=1
}

# pip says that it found nothing; what its index answered stands in its longer log alone. With that log it keeps from us
# what a build said, so it is asked for here only.
index_refused() {
  local answer
  "$@" --log "$TMPDIR/pip.log" &>/dev/null </dev/null || true
  # an index of one's own beside the main one has no page of most packages: that 404 is the last, and not the cause
  answer=$(sed -n 's/.*Could not fetch URL \(.*\) - skipping.*/\1/p' "$TMPDIR/pip.log" 2>/dev/null |
    awk '!/: 404 / { other = $0 } { last = $0 } END { print other ? other : last }') || true
  [[ -z $answer ]] || cause="pip could not fetch $(why <<<"$answer")"
}

pip_install() {
  # What is built is built below the environment: what a killed set-up leaves goes with it.
  local -x TMPDIR=$venv/tmp PYTHONWARNINGS=
  mkdir -p "$TMPDIR"
  [[ -n ${pip_set-} ]] || pip_settings
  local pip=("$venv/bin/python" -I -m pip --disable-pip-version-check --no-input install
    --progress-bar off --no-deps --use-pep517 --no-build-isolation "$@")
  again "${pip[@]}" || {
    [[ $cause != *'(from versions: none)'* ]] || index_refused "${pip[@]}"
    stopped
  }
  rm -rf "$TMPDIR"
}

make_env() {
  find_python
  say "environment: $venv (Python: $python), a minute or two"
  rm -rf "$venv"
  mkdir -p "$venv/tmp" # as in pip_install
  TMPDIR=$venv/tmp must "$python" -I -m venv "$venv" --without-pip
  TMPDIR=$venv/tmp must "$venv/bin/python" -I -m ensurepip --upgrade --default-pip # venv itself hides what this one says
  pip_install -r "$here/conf/lock/build.txt"
  pip_install -r "$here/conf/lock/run.txt"
  pip_install --editable "$here"
  must "$venv/bin/kafka-daily" --version # what cannot start here, as below a folder mounted noexec, is no environment
}

make_tools() {
  local half
  say "tools for the tests, about half a minute"
  for half in "$venv"/lib/python3*/site-packages/*.dist-info; do
    [[ -e $half/INSTALLER ]] || rm -rf "$half" # what pip was killed over, it would take for whole
  done
  pip_install -r "$here/conf/lock/test.txt"
}

make_jars() ( # $1: spark | broker; a shell of its own, as the folder that we were called in may be closed to us
  local jars=$venv/jars lib
  trap 'exit 130' INT
  lib=$(echo "$venv"/lib/python3*/site-packages/pyspark/jars)
  say "jars: $jars/$1"
  mkdir -p "$jars"
  cd "$jars" # Ivy reads brackets in a pattern as its own, so the pattern has no path of ours in it
  rm -rf ".$1-new" .ivy # what a set-up that failed kept of a repository may be half of it
  must "$java_home/bin/java" -Divy.default.ivy.user.dir="$jars/.ivy" \
    -cp "$(echo "$lib"/ivy-*.jar):$(echo "$lib"/commons-cli-*.jar)" org.apache.ivy.Main -verbose \
    -settings "$here/conf/ivysettings.xml" -ivy "$here/conf/ivy.xml" -cache "$jars/.ivy/cache" \
    -confs "$1" -retrieve ".$1-new/[artifact]-[revision].[ext]"
  rm -rf "$1"
  mv -T ".$1-new" "$1"
)

make_classes() { # by which Java starts sooner; it can be done without
  say "classes for Java's start, about half a minute"
  JAVA_HOME=$java_home KAFKA_DAILY_HOME=$home "$venv/bin/python" -P -m jobs.spark.class_archive </dev/null >>"$log" 2>&1 ||
    say "they could not be kept, so Spark starts some seconds later; see $log. To try again: rm '$venv/.classes-stamp'"
}

unforeseen() { # $1: the code that a command ended with, whose own words stand above; 2: all was said; 130: Ctrl-C
  (($1 != 130)) || exit 130
  (($1 == 2)) || say "It stopped at that. What is there is kept: run this again once the cause is gone."
  exit 2
}

set_up() {
  local theirs
  set -E
  trap 'unforeseen $?' ERR
  trap 'exit 130' INT # the programs that we wait for have a code of their own for it
  [[ $home != *'$'* ]] || die "$home has a \$ in its path, which pyspark's build takes for a variable. Set KAFKA_DAILY_HOME to another."
  [[ -e $home/.lock || -L $home/venv || ! -d $home ]] || {
    theirs=$(ls -A -I lost+found "$home" 2>/dev/null) ||
      die "cannot list $home. Set KAFKA_DAILY_HOME to a folder of your own."
    # the lock is looked for again last: another set-up may have begun meanwhile
    [[ -z $theirs || -e $home/.lock ]] ||
      die "$home holds files that are not of set-up, which needs a folder of its own. Set KAFKA_DAILY_HOME to a new one," \
        "such as $home/kafka-daily."
  }
  { mkdir -p "$home" && : >>"$home/.lock"; } 2>/dev/null ||
    die "cannot write $home. Set KAFKA_DAILY_HOME to a folder that can be written."
  exec 9>>"$home/.lock"
  flock -n 9 2>/dev/null || {
    (($? == 1)) || die "cannot lock $home/.lock. Set KAFKA_DAILY_HOME to a folder whose file system has locks (flock)."
    say "another set-up is at work; waiting for it"
    flock 9
  }
  complete || make_missing # the other one may have done it
  exec 9>&-
  trap - ERR INT
  set +E
}

make_missing() {
  local part before
  rm -f "$log"
  (umask 077 && : >"$log") # it may hold the password of a proxy
  before=$(readlink "$home/venv") || before=
  for part in "${needs[@]}"; do
    if [[ $part == java ]]; then # also where JAVA_HOME names it: cron does not know that
      java_known || find_java
      printf '%s\n' "$java_home" >"$home/.java-home-new"
      mv -T "$home/.java-home-new" "$home/java-home"
      continue
    fi
    stamped "$part" && continue
    case $part in
      env | tools | classes) "make_$part" ;;
      *) make_jars "$part" ;;
    esac
    [[ -L $home/venv ]] || rm -rf "$home/venv" # a copy that followed links made it a folder
    ln -sfn "${venv##*/}" "$home/.venv-new" && mv -T "$home/.venv-new" "$home/venv"
    # The stamp comes last, so a set-up that was killed is seen as not done.
    stamp_of "$part"
    : >"$stamp"
  done
  rm -rf "$venv/jars/.ivy"
  # A run that began before an update goes on in its own environment; the one before that is nobody's. Where the
  # link was there already, as after a try that failed, which one that is is not known.
  [[ $before == "${venv##*/}" ]] ||
    (cd "$home" && find . -maxdepth 1 -regextype sed -regex '\./venv-[0-9a-f]\{12\}' -mtime +7 \
      ! -name "${venv##*/}" ! -name "$before" -exec rm -rf {} +) 2>>"$log" || true # another user's stays
  say "ready"
}

run_tests() {
  cd "$here"
  "$venv/bin/ruff" format --check .
  "$venv/bin/ruff" check .
  (($#)) || exec "$venv/bin/python" -m tests.lanes
  "$venv/bin/mypy"
  "$venv/bin/lint-imports"
  exec "$venv/bin/python" -m pytest "$@"
}

pwd -P &>/dev/null || cd / 2>/dev/null # in a folder that was removed no program of ours starts
unset PYTHONPATH PYTHONHOME # another project's packages must not stand before ours
# where no locale is set, or one that is not installed, Java finds no file whose path is more than ASCII
[[ $(locale charmap 2>/dev/null) == UTF-8 ]] || export LC_ALL=C.UTF-8
[[ ${JAVA_HOME:-/} == /* ]] || JAVA_HOME=$PWD/$JAVA_HOME # not every program starts in this folder
export HOME=${HOME-~} # else pip makes a folder of that name for a user who has none
[[ $* != "setup --help" && $* != "setup -h" ]] || {
  echo "./run.sh setup [env | demo | soak | test]: set up what a run needs; its environment alone; or also what these need"
  exit 0
}
[[ ${1-} != setup || $# == 1 || $# == 2 && $2 =~ ^(env|demo|soak|test)$ ]] ||
  die "expected ./run.sh setup, setup env, setup demo, setup soak or setup test; found: $*. Correct it."
complete || set_up
[[ ${1-} != setup ]] || exit 0
java_known
export KAFKA_DAILY_HOME=$home JAVA_HOME=$java_home
touch -c "$venv" 2>/dev/null || true # in use: a set-up of another checkout removes what nobody used for a week
[[ ${1-} != test ]] || run_tests "${@:2}"
[[ ${1-} != soak ]] || { cd "$here" && exec "$venv/bin/python" -m tests.soak "$@"; }
[[ ${1-} != prove ]] || { cd "$here" && exec "$venv/bin/python" -m tests.prove "${@:2}"; }
exec "$venv/bin/kafka-daily" "$@"
