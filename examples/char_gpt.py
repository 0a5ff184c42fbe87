"""A small GPT learns to write Python's own help texts, letter by letter.

    python examples/char_gpt.py [--steps 1000] [--temperature 0.7] [--greedy] [--save FILE]

The text is `pydoc_data.topics` of the standard library; its last tenth is held out. Forward,
backward, clipping, the rate's warm-up and cosine, and AdamW are one native function. Sampling is a
second one, whose state is the window of letters that it has read and the random key.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from tqdm import tqdm

import rlx_py as rlx

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
LAYERS, WIDTH, HEADS, WINDOW, BATCH = 2, 96, 4, 64, 16


def load_text() -> tuple[Array, Array]:
    """The text as numbers of letters (i32), and the letters (ASCII codes) they stand for."""
    text = "\n".join(topics[k] for k in sorted(topics)).encode("ascii", "replace")
    letters, tokens = np.unique(np.frombuffer(text, np.uint8), return_inverse=True)
    return tokens.astype(np.int32), letters


def gpt(g: rlx.Graph, x: rlx.Node, letters: int) -> rlx.Node:
    """Logits [B, T, letters] of the letter after each of x [B, T]: pre-norm blocks of causal
    attention and a network with one hidden layer, on learned places."""
    def norm(h: rlx.Node, name: str) -> rlx.Node:
        scale, shift = g.param(f"{name}.scale", (WIDTH,)), g.param(f"{name}.shift", (WIDTH,))
        return rlx.layer_norm(h, (WIDTH,), scale, shift)

    def linear(h: rlx.Node, name: str, width: int) -> rlx.Node:
        return h @ g.param(f"{name}.w", (h.shape[-1], width)) + g.param(f"{name}.b", (width,))

    table = g.param("letters", (letters, WIDTH))
    h = rlx.embedding(x, table) + g.param("places", (x.shape[1], WIDTH))
    for i in range(LAYERS):
        q, k, v = rlx.split(linear(norm(h, f"l{i}.norm1"), f"l{i}.qkv", 3 * WIDTH), 3, axis=2)
        mixed = rlx.nn.attention(q, k, v, mask="causal", num_heads=HEADS)
        h = h + linear(mixed, f"l{i}.mix", WIDTH)
        up = rlx.gelu(linear(norm(h, f"l{i}.norm2"), f"l{i}.up", 4 * WIDTH))
        h = h + linear(up, f"l{i}.down", WIDTH)
    return norm(h, "norm") @ table.T


def loss_graph(letters: int) -> rlx.Graph:
    """Mean cross-entropy of the next letters, in nats."""
    g = rlx.Graph("gpt")
    x, y = g.input("x", (BATCH, WINDOW), rlx.i32), g.input("y", (BATCH, WINDOW), rlx.i32)
    g.output("loss", rlx.softmax_cross_entropy(gpt(g, x, letters), y).mean())
    return g


def sampler(letters: int, prompt: Array, greedy: bool) -> rlx.Graph:
    """Each step writes one letter after the window, and moves the window by it."""
    g = rlx.Graph("sampler")
    window = g.state("window", (WINDOW,), rlx.i32, init=prompt)
    logits = gpt(g, window[None], letters)[0, -1]
    if greedy:
        letter = logits.argmax()
    else:
        temperature = g.input("temperature", ())
        letter = rlx.random.categorical(rlx.random.key_state(g), logits / temperature)
    g.next("window", rlx.concatenate([window[1:], letter.astype(rlx.i32)[None]]))
    g.output("letter", letter)
    return g


def windows(tokens: Array, starts: Array) -> dict[str, Array]:
    """The text from each start, and the same one letter later."""
    rows = tokens[starts[:, None] + np.arange(WINDOW + 1)]
    return {"x": np.ascontiguousarray(rows[:, :-1]), "y": np.ascontiguousarray(rows[:, 1:])}


def train(tokens: Array, letters: int, steps: int, measure: Callable[[Arrays], float]) -> Arrays:
    """The params after `steps` batches."""
    rng = np.random.default_rng(0)
    g = loss_graph(letters)
    schedule = rlx.optim.warmup_cosine(3e-3, steps // 10, steps, floor=3e-4)
    begin = time.perf_counter()
    step = rlx.compile(rlx.train_step(g, of="loss", clip_norm=1.0,
                                      optimizer=rlx.optim.adamw(schedule, weight_decay=0.1)))
    compiled = time.perf_counter() - begin
    state = step.init(rlx.init.normal(g, seed=0, std=0.05))
    size = sum(a.size for a in state.params.values())
    print(f"{size} weights; compiled in {compiled:.1f} s; "
          f"{measure(state.params):.3f} bits a letter before training")
    bar = tqdm(range(steps), unit="step")
    for i in bar:
        out = step.step(state, **windows(tokens, rng.integers(0, len(tokens) - WINDOW, BATCH)))
        if i % 20 == 0:
            bar.set_postfix(bits=f"{out.loss / np.log(2):.3f}")
    return state.params


def write(params: Arrays, letters: Array, prompt: Array, args: argparse.Namespace) -> str:
    """`args.letters` letters after the prompt."""
    exe = rlx.compile(sampler(len(letters), prompt, args.greedy))
    state = exe.init(params)
    inputs = {} if args.greedy else {"temperature": args.temperature}
    written = [int(exe.step(state, **inputs).letter) for _ in range(args.letters)]
    return letters[written].tobytes().decode()


def main() -> None:
    """Train, measure on held-out text, save, and write from what was saved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--letters", type=int, default=400, help="to write")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--greedy", action="store_true", help="always the likeliest letter")
    parser.add_argument("--save", type=Path, help="keep the weights (safetensors)")
    args = parser.parse_args()
    tokens, letters = load_text()
    seen, held_out = np.split(tokens, [len(tokens) * 9 // 10])
    exe = rlx.compile(loss_graph(len(letters)))

    def measure(params: Arrays) -> float:
        """Bits a letter on windows spread over the held-out text."""
        starts = np.linspace(0, len(held_out) - WINDOW - 1, 16 * BATCH).astype(int)
        return float(np.mean([exe(**windows(held_out, s), **params).loss
                              for s in starts.reshape(-1, BATCH)]) / np.log(2))

    share = (np.bincount(seen, minlength=len(letters)) + 1) / (len(seen) + len(letters))
    print(f"held-out text: {-np.log2(share[held_out]).mean():.3f} bits a letter by frequency")
    trained = train(seen, len(letters), args.steps, measure)
    print(f"held-out text: {measure(trained):.3f} bits a letter by the network")

    with tempfile.TemporaryDirectory() as folder:
        path = args.save or Path(folder) / "char_gpt.safetensors"
        rlx.save_arrays(path, trained)
        print(f"{path.stat().st_size} bytes of weights saved")
        params = rlx.load_arrays(path)
    prompt = held_out[:WINDOW]
    print(f"--- after {letters[prompt].tobytes().decode()!r}")
    print(write(params, letters, prompt, args))


if __name__ == "__main__":
    main()
