"""The code of this book's pages: laws, studies, claims, figures. What readers use again lies in `attnlib`.

Pages compute on one thread wherever they are opened, in Colab, Lab or plain Jupyter: their tensors and matrices are small, and shared
among threads they took several times longer on two cores. BOOKKIT_THREADS asks for more, to see what another order of sums changes.
"""

import contextlib
import os
import sys

_threads = os.environ.get("BOOKKIT_THREADS", "1")
if "ipykernel" in sys.modules:  # on a page: for libraries that it loads later, and for those it has
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), _threads))
    with contextlib.suppress(ImportError):  # it comes with scikit-learn
        import threadpoolctl

        threadpoolctl.threadpool_limits(int(_threads))
if torch := sys.modules.get("torch"):  # a command line that needs none does not wait for it
    torch.set_num_threads(int(_threads))
