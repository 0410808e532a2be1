"""The fake vLLM server of tests/peers, extended to receive weights over NCCL as vLLM's workers do.

It needs a GPU of its own; the model itself stays on the CPU. It writes each update to
FOLDER/received-NUMBER.safetensors.
"""

import argparse
import ctypes
import math
import os
import pathlib
import pickle
import socket
import sys
import time
import types

import safetensors.torch
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import vllm_server  # noqa: E402

PACK_BYTES = 1 << 30  # vLLM's
UINT8, FLOAT32, SUM = 1, 7, 0  # as nccl.h numbers them
WRAPPER = "vllm.distributed.device_communicators.pynccl_wrapper"


class ncclUniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def known_as_vllms():
    """Registers the type of the pickled id under the name that vLLM uses for it."""
    names = WRAPPER.split(".")
    for end in range(1, len(names) + 1):
        sys.modules.setdefault(".".join(names[:end]), types.ModuleType(names[end - 1]))
    ncclUniqueId.__module__ = WRAPPER
    sys.modules[WRAPPER].ncclUniqueId = ncclUniqueId


class Group:
    """The worker's side of the group: rank 1 of 2."""

    def __init__(self, address, port, world):
        known_as_vllms()
        self.address = (address, port)
        store = torch.distributed.TCPStore(address, port, world, False, use_libuv=False)
        unique_id = pickle.loads(store.get("broadcast_from/0/0"))
        assert type(unique_id) is ncclUniqueId
        self.nccl = ctypes.CDLL("libnccl.so.2")
        self.nccl.ncclGetErrorString.restype = ctypes.c_char_p
        self.nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int,
                                               ncclUniqueId, ctypes.c_int]
        self.comm, self.store = ctypes.c_void_p(), store
        torch.cuda.set_device(0)
        self.need(self.nccl.ncclCommInitRank(ctypes.byref(self.comm), world, unique_id, 1))
        one = torch.zeros(1, device="cuda")
        at = ctypes.c_void_p(one.data_ptr())
        self.need(self.nccl.ncclAllReduce(at, at, ctypes.c_size_t(1), FLOAT32, SUM, self.comm,
                                          self.stream()))
        torch.cuda.synchronize()

    def port_is_open(self):
        try:
            socket.create_connection(self.address, 5).close()
            return True
        except OSError:
            return False

    def need(self, result):
        if result != 0:
            raise RuntimeError(self.nccl.ncclGetErrorString(result).decode())

    def stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def receive(self, size):
        pack = torch.empty(size, dtype=torch.uint8, device="cuda")
        at = ctypes.c_void_p(pack.data_ptr())
        self.need(self.nccl.ncclBroadcast(at, at, ctypes.c_size_t(size), UINT8, 0, self.comm,
                                          self.stream()))
        torch.cuda.synchronize()
        return pack.cpu()


class WeightServer(vllm_server.Server):
    def __init__(self, folder, port, out, pack_bytes=PACK_BYTES, refuses_update=0):
        super().__init__(folder, port, dev=True)
        self.out, self.pack_bytes = pathlib.Path(out), pack_bytes
        self.refuses_update = refuses_update
        self.group, self.updates, self.updating = None, 0, False

    def more(self, path, body):
        known = {"/init_weight_transfer_engine": self.init, "/start_weight_update": self.begin,
                 "/update_weights": self.update, "/finish_weight_update": self.finish,
                 "/reset_prefix_cache": lambda body: {"success": True}}
        if path not in known:
            return super().more(path, body)
        try:
            return known[path](body) or {"message": "done"}
        except AssertionError as wrong:
            raise vllm_server.Refusal(400, f"not as it is recorded: {wrong}") from wrong

    def init(self, body):
        info = body["init_info"]
        assert set(info) == {"master_address", "master_port", "rank_offset", "world_size",
                             "packed"}, info
        assert (info["rank_offset"], info["world_size"], info["packed"]) == (1, 2, True), info
        self.group = Group(info["master_address"], info["master_port"], 2)

    def begin(self, body):
        assert self.group is not None and not self.updating
        assert not self.group.port_is_open(), "the trainer still serves the NCCL id"
        self.updating = True

    def update(self, body):
        assert self.updating
        self.updates += 1
        if self.updates == self.refuses_update:
            raise vllm_server.Refusal(500, "no room for these weights")
        info = body["update_info"]
        waiting, received = [], {}
        tensors = list(zip(info["names"], info["dtype_names"], info["shapes"], strict=True))
        for number, (name, dtype, shape) in enumerate(tensors):
            size = math.prod(shape) * getattr(torch, dtype).itemsize
            waiting.append((name, getattr(torch, dtype), shape, size))
            total = sum(size for *_, size in waiting)
            if total > self.pack_bytes or number + 1 == len(tensors):
                pack = self.group.receive(total)
                parts = pack.split([size for *_, size in waiting])
                for (name, dtype, shape, _), part in zip(waiting, parts):
                    received[name] = part.clone().view(dtype).view(shape)
                waiting = []
        with self.model.lock:
            missing, unknown = self.model.base.load_state_dict(received, strict=False)
        assert not unknown and set(missing) <= {"lm_head.weight"}, (missing, unknown)
        part = self.out / "part"
        safetensors.torch.save_file(received, part)
        part.rename(self.out / f"received-{self.updates}.safetensors")

    def finish(self, body):
        assert self.updating
        self.updating = False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--out", required=True)
    parser.add_argument("--refuses-update", type=int, default=0)
    options = parser.parse_args()
    with WeightServer(options.model, options.port, options.out,
                      refuses_update=options.refuses_update):
        print("up", flush=True)
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.5)


if __name__ == "__main__":
    main()
