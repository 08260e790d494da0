"""The machine that this runs on as a device profile, measured on the spot with the libraries that the device uses."""

import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import constriction
import numpy as np
import torch

from sakura.paper_scale.devices import DeviceProfile, Number

DEVICE_ID, TITLE = "this-machine", "This machine"
REPEATS = 5
TOKENS, WIDTH, HIDDEN, RANK = 512, 512, 2048, 64
NUMBERS = 1 << 20
SYMBOLS = 1 << 17
FP16_BYTES = 2


def measure_this_machine() -> DeviceProfile:
    """Takes well under a second. Speeds count like the engine's: one thread executes, another one rebuilds."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            return _measure()
    finally:
        torch.set_num_threads(before)


def _measure() -> DeviceProfile:
    tokens, weights = torch.rand(TOKENS, WIDTH), torch.rand(WIDTH, HIDDEN)
    left, right = torch.rand(TOKENS, RANK), torch.rand(RANK, HIDDEN)
    numbers, target = torch.rand(NUMBERS), torch.empty(NUMBERS)
    codes = torch.randint(0, 256, (NUMBERS // 64, 64), dtype=torch.uint8)
    scales = torch.rand(NUMBERS // 64, 1)
    symbols = np.random.default_rng(0).geometric(0.1, SYMBOLS).clip(0, 100).astype(np.int32)
    model = constriction.stream.model.Categorical(np.bincount(symbols, minlength=101) + 1.0, perfect=False)
    coder = constriction.stream.stack.AnsCoder()
    coder.encode_reverse(symbols, model)
    words = coder.get_compressed()
    products = 2e-12 * TOKENS * WIDTH * HIDDEN
    with ThreadPoolExecutor(1) as executor:
        return DeviceProfile(
            DEVICE_ID,
            TITLE,
            concurrent=(os.cpu_count() or 1) > 1,
            npu_tflops=_rate(products, lambda: tokens @ weights, "Matrix products in float32 on one thread."),
            gpu_tflops=_rate(
                2e-12 * TOKENS * RANK * HIDDEN, lambda: left @ right, f"Products of factors of rank {RANK}, one thread."
            ),
            gpu_write_gb_per_s=_rate(
                1e-9 * FP16_BYTES * NUMBERS, lambda: target.copy_(numbers), "Copied float32 numbers, counted as fp16."
            ),
            dequantise_gb_per_s=_rate(
                1e-9 * FP16_BYTES * NUMBERS, lambda: codes * scales + scales, "Bytes to float32 in groups of 64."
            ),
            entropy_decode_gb_per_s=_rate(
                1e-9 * FP16_BYTES * SYMBOLS,
                lambda: constriction.stream.stack.AnsCoder(words).decode(model, SYMBOLS),
                "Symbols of constriction's AnsCoder, each counted as one fp16 number.",
            ),
            dispatch_ms=_dispatch_ms(executor),
            sustained_share=_assumed(1.0, "It was measured at work."),
            throttled_share=_assumed(1.0, "Cooled machines keep their speed."),
        )


def _rate(amount: float, work: Callable[[], object], source: str) -> Number:
    """``amount`` a second, of which ``work`` does one."""
    work()
    rates = [amount / _seconds(work) for _ in range(REPEATS)]
    return Number(statistics.median(rates), min(rates), max(rates), "measured", source)


def _dispatch_ms(executor: ThreadPoolExecutor) -> Number:
    def work() -> None:
        executor.submit(int).result()

    work()
    times = [1e3 * _seconds(work) for _ in range(REPEATS)]
    return Number(statistics.median(times), min(times), max(times), "measured", "A call on another thread and back.")


def _seconds(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return max(1e-7, time.perf_counter() - began_s)


def _assumed(value: float, source: str) -> Number:
    return Number(value, value, value, "assumed", source)
