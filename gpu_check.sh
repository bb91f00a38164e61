export PYTHONPATH=.:book PYTHONUNBUFFERED=1
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; python3 -V; python3 -c "import torch,triton,numba;print(torch.__version__,triton.__version__,numba.__version__)"
date +%T
timeout 230 python3 -m pytest tests/kernels tests/test_device.py -n 14 --dist worksteal -q -p no:cacheprovider -o filterwarnings=default --tb=short --durations 12 > $OUT/tests.log 2>&1; tail -45 $OUT/tests.log
date +%T
timeout ${1:-230} python3 -m benchmarks --device cuda --seconds 1 --output $OUT 2>&1 | tee $OUT/bench.log
date +%T
