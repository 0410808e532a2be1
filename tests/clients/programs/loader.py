"""A DataLoader with worker processes of its own."""

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(40, dtype=torch.float32))
total = sum(batch[0].sum().item() for batch in DataLoader(data, batch_size=4, num_workers=2))
print("sum", total, flush=True)
