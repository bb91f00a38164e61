#!/usr/bin/env bash
# What only a machine with an NVIDIA GPU can tell, in four minutes: installs what is missing, tests the GPU programs, measures them.
#
#     bash gpu_check.sh [FOLDER]       FOLDER: of logs and figures (default: gpu_check)
#
# Variables: PYTHON, 3.11 or later (python3); where its torch sees the card, that torch is used and not fetched. WHEELS, a folder
# of wheels, for a machine without a network. LIMIT, seconds for all parts together (235).
# Every part has its share of the time; what it had found when that was over stays in its log. Exit code 0: all parts ended well.
set -uo pipefail
cd "$(dirname "$0")"
out=${1:-gpu_check} python=${PYTHON:-python3} limit=${LIMIT:-235} failed=0
mkdir -p "$out"
: >"$out/summary.txt"
export PYTHONPATH=.:book PYTHONUNBUFFERED=1

# part NAME SHARE COMMAND...: COMMAND for at most SHARE percent of the seconds that are left, its output in NAME.log.
part() {
  local name=$1 share=$(((limit - SECONDS) * $2 / 100)) start=$SECONDS code
  shift 2
  if ((share < 1)); then
    code="not begun: no time is left"
  else
    timeout --signal INT --kill-after 5 "$share" "$@" >"$out/$name.log" 2>&1
    code=$?
    case $code in
      0) code="done" ;;
      124 | 137) code="cut short" ;;
      *) code="failed with exit code $code" ;;
    esac
    tail -n 12 "$out/$name.log"
  fi
  [ "$code" = done ] || failed=1
  echo "$name: $code, $((SECONDS - start)) s" | tee -a "$out/summary.txt"
}

# A virtual environment that also sees the packages of $python where torch there sees the card.
install() {
  "$python" -m venv "$out/env" || return
  if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    "$python" -c 'import sys; print(*[p for p in sys.path if p.endswith("-packages")], sep="\n")' \
      >"$("$out/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/parent.pth" || return
  fi
  "$out/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile ${WHEELS:+--no-index --find-links "$WHEELS"} \
    numpy scipy torch 'triton>=3.6' numba llvmlite safetensors tqdm mpmath pytest pytest-timeout pytest-xdist &&
    "$out/env/bin/python" -c 'import torch, triton, numba; print(torch.__version__, triton.__version__, numba.__version__)'
}
export -f install
export out python

part card 20 nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
part install 60 bash -c install
part tests 50 "$out/env/bin/python" -m pytest tests/kernels tests/test_device.py -v -n "$(nproc)" --dist worksteal --tb short \
  -p no:cacheprovider -W default
part measures 100 "$out/env/bin/python" -m benchmarks --device cuda --seconds 1
cp $(sed -n 's/^kept in //p' "$out/measures.log") "$out" 2>/dev/null
exit "$failed"
