"""Token selection under label noise (arXiv 2409.17625): data law, dense and exact training, population error, claims."""
