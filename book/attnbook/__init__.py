"""The code of this book's pages: laws, studies, claims, figures. What readers use again lies in `attnlib`.

Pages compute on one thread wherever they are opened, in Colab, Lab or plain Jupyter: their tensors are small, and shared among threads
they took several times longer on two cores. BOOKKIT_THREADS asks for more, to see what another order of sums changes.
"""

import os
import sys

if torch := sys.modules.get("torch"):  # on a page it is there; a command line that needs none does not wait for it
    torch.set_num_threads(int(os.environ.get("BOOKKIT_THREADS", "1")))
