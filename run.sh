#!/usr/bin/env bash
# The one entrance: ./run.sh plan | run | status | verify | demo | soak | test | setup ...
# Sets up what is missing (Java, an environment, jars, an archive of classes), once, then hands over to kafka-daily.
# Touches nothing but KAFKA_DAILY_HOME (default: .kafka-daily beside this file), and downloads nothing once set up.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
home=${KAFKA_DAILY_HOME:-$here/.kafka-daily}
case $home in /*) ;; *) home=$PWD/$home ;; esac
log=$home/setup.log
needs=(env spark classes)
case ${1-} in
  test) needs+=(tools broker) ;;
  *) case " $* " in *" demo "* | *" soak "*) needs+=(broker) ;; esac ;;
esac

say() { printf 'set-up: %s\n' "$*" >&2; }

die() {
  say "$@"
  exit 2
}

# ---------------------------------------------------------------- what is there

# The pins, and where they were installed from: an environment points into its checkout.
pins() {
  { printf '%s\n' "$here" && sed '/^\[tool\.ruff/,$d' "$here/pyproject.toml" && cat "$here/conf/constraints.txt"; } |
    sha256sum | cut -c1-12
}
jar_pins() { cat "$here/conf/ivy.xml" "$here/conf/ivysettings.xml" | sha256sum | cut -c1-12; }

stamp_of() { # what a part must be stamped with
  case $1 in
    env) printf '%s' "$pins" ;;
    tools) printf '%s' "$pins-test" ;;
    *) printf '%s' "$jar_pins" ;;
  esac
}
stamp_file() {
  case $1 in
    env | tools | classes) printf '%s' "$venv/.$1-stamp" ;;
    *) printf '%s' "$home/jars/$1/.stamp" ;;
  esac
}
stamped() { [[ -f "$(stamp_file "$1")" && "$(<"$(stamp_file "$1")")" == "$(stamp_of "$1")" ]]; }

missing() { # the needed parts that are not there
  local part
  java_known || printf 'java '
  for part in "${needs[@]}"; do stamped "$part" || printf '%s ' "$part"; done
}

# ---------------------------------------------------------------- Java

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
  else
    [[ -f $home/java-home ]] && java_home=$(<"$home/java-home") && [[ -x $java_home/bin/java ]]
  fi
}

java_search() {
  local candidate
  candidate=$(command -v java) && candidate=$(readlink -f "$candidate") && candidate=${candidate%/bin/java}
  for candidate in "$candidate" /usr/lib/jvm/*; do
    if java_fits "$candidate"; then
      java_home=$candidate
      return
    fi
  done
  return 1
}

find_java() {
  java_known && return
  java_search || {
    apt_can || die "Java 17 to 23 is needed and none was found in JAVA_HOME, on the path or in /usr/lib/jvm." \
      "Install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME."
    apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || apt_install default-jre-headless ||
      die "no package with Java could be installed; see $log."
    java_search || die "the installed Java does not fit: 17 to 23 is needed. Set JAVA_HOME to one."
  }
  say "Java: $java_home"
  printf '%s\n' "$java_home" >"$home/java-home"
}

# ---------------------------------------------------------------- Python

python_fits() {
  "$1" -c 'import sys, ssl, zlib, ctypes, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
    >/dev/null 2>&1
}

python_search() {
  local name candidate
  for name in python3 python3.13 python3.12 python3.11; do
    candidate=$(command -v "$name") && python_fits "$candidate" && python=$candidate && return
  done
  for candidate in ~/.pyenv/versions/3.1[123]*/bin/python3 /usr/local/bin/python3.1[123] /usr/bin/python3.1[123]; do
    python_fits "$candidate" && python=$candidate && return
  done
  return 1
}

find_python() {
  python_search && return
  apt_can || die "Python 3.11, 3.12 or 3.13 with venv is needed and none was found on the path, in ~/.pyenv," \
    "/usr/local/bin or /usr/bin. Install one (Debian, Ubuntu: apt-get install python3 python3-venv)."
  apt_install python3 python3-venv || die "Python could not be installed; see $log."
  python_search || die "this system's own Python is $(python3 -V 2>&1); 3.11, 3.12 or 3.13 with venv is needed. Install one."
}

# ---------------------------------------------------------------- installing

apt_can() { [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; }

apt_install() {
  say "installing $* with apt-get"
  # dpkg wants the system's own programs, which cron's path does not have.
  local -x PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive
  again apt-get -o DPkg::Lock::Timeout=300 update &&
    apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" </dev/null >>"$log" 2>&1
}

again() { # a command, tried a few times: a download can fail
  local attempt
  for attempt in 1 2 3 4; do
    "$@" </dev/null >>"$log" 2>&1 && return
    ((attempt < 4)) || break
    say "that failed (attempt $attempt of 4); trying again in $((attempt * attempt * 2)) s"
    sleep $((attempt * attempt * 2))
  done
  return 1
}

must() {
  again "$@" && return
  tail -n 15 "$log" >&2
  die "failed: $* (see $log). What is there already is kept: run the same command again once the cause is gone."
}

pip_install() {
  # A configuration of the user's own that installs elsewhere would leave the environment empty.
  must env -u PIP_TARGET -u PIP_PREFIX -u PIP_USER -u PIP_REQUIRE_VIRTUALENV \
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input \
    install --progress-bar off --constraint "$here/conf/constraints.txt" "$@"
}

make_env() {
  find_python
  say "environment: $venv (Python: $python), about a minute"
  rm -rf "$venv"
  "$python" -m venv "$venv" >>"$log" 2>&1 || die "$python cannot make an environment; see $log."
  # pyspark has no wheel on the index: what builds it must be there, since nothing is built in isolation
  pip_install hatchling editables setuptools wheel
  pip_install --no-build-isolation --editable "$here"
}

make_tools() {
  say "tools for the tests, about half a minute"
  pip_install --no-build-isolation --editable "${here}[test]"
}

make_jars() { # $1: spark | broker
  local jars=$home/jars lib
  lib=$(echo "$venv"/lib/python3*/site-packages/pyspark/jars)
  say "jars: $jars/$1"
  mkdir -p "$jars"
  cd "$jars" # Ivy reads brackets in a pattern as its own, so the pattern has no path of ours in it
  rm -rf ".$1-new"
  must "$java_home/bin/java" -Divy.default.ivy.user.dir="$jars/.ivy" \
    -cp "$(echo "$lib"/ivy-*.jar):$(echo "$lib"/commons-cli-*.jar)" org.apache.ivy.Main -warn \
    -settings "$here/conf/ivysettings.xml" -ivy "$here/conf/ivy.xml" -cache "$jars/.ivy/cache" \
    -confs "$1" -retrieve ".$1-new/[artifact]-[revision].[ext]"
  rm -rf "$1"
  mv -T ".$1-new" "$1"
  cd - >/dev/null
}

make_classes() { # by which Java starts sooner; it can be done without
  say "classes for Java's start, about half a minute"
  JAVA_HOME=$java_home KAFKA_DAILY_HOME=$home "$venv/bin/python" -m jobs.classes </dev/null >>"$log" 2>&1 ||
    say "they could not be kept, so Spark starts some seconds later; see $log. To try again: rm $(stamp_file classes)"
}

set_up() {
  mkdir -p "$home" || die "cannot write $home. Set KAFKA_DAILY_HOME to a folder that can be written."
  exec 9>>"$home/.lock"
  flock -n 9 || {
    say "another set-up is at work; waiting for it"
    flock 9
  }
  if [[ -n $(missing) ]]; then # else the other one did it
    : >"$log"
    make_missing
  fi
  exec 9>&-
}

make_missing() {
  local part
  find_java
  for part in "${needs[@]}"; do
    stamped "$part" && continue
    case $part in
      env) make_env ;;
      tools) make_tools ;;
      classes) make_classes ;;
      *) make_jars "$part" ;;
    esac
    # The stamp comes last, so a set-up that was killed is seen as not done.
    stamp_of "$part" >"$(stamp_file "$part")"
  done
  rm -rf "$home/jars/.ivy"
  # A run that began before an update goes on in its own environment; the one before that is nobody's.
  ln -sfn "${venv##*/}" "$home/.venv-new" && mv -T "$home/.venv-new" "$home/venv"
  find "$home" -maxdepth 1 -name 'venv-*' ! -name "${venv##*/}" -mtime +7 -exec rm -rf {} +
  say "ready"
}

# ---------------------------------------------------------------- the tests

run_tests() {
  local bin=$venv/bin
  cd "$here"
  "$bin/ruff" format --check .
  "$bin/ruff" check .
  "$bin/mypy"
  "$bin/lint-imports"
  exec "$bin/python" -m pytest "$@"
}

pins=$(pins)
jar_pins=$(jar_pins)
venv=$home/venv-$pins
# Another project's packages must not stand before ours.
unset PYTHONPATH PYTHONHOME
[[ -z $(missing) ]] || set_up
java_known
export KAFKA_DAILY_HOME=$home JAVA_HOME=$java_home
case ${1-} in
  setup) ;;
  test) run_tests "${@:2}" ;;
  *) exec "$venv/bin/kafka-daily" "$@" ;;
esac
