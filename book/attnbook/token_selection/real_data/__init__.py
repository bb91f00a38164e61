"""Real data: loaders, frozen backbones, and the fine-tuning of one layer's query and key under label noise."""
