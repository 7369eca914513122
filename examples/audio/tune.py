"""Writes a tune as a WAV file: 16 kHz, 16 bits, one channel, so 256 kbit/s. It is computed, so it is free.

python examples/audio/tune.py tune.wav [--seconds 12]
"""

import argparse
import math
import wave
from array import array
from pathlib import Path

RATE = 16_000
BEAT = 0.25  # seconds
SCALE = (262, 294, 330, 392, 440, 523, 440, 392, 330, 294)  # hertz, one note a beat


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A tune as a WAV file.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=12.0)
    options = parser.parse_args(arguments)
    with wave.open(str(options.file), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples(options.seconds))


def samples(seconds: float) -> bytes:
    """Sine tones that fade out, as a plucked string does."""
    heights = array("h")
    for number in range(round(seconds * RATE)):
        beat, within = divmod(number / RATE, BEAT)
        pitch = SCALE[int(beat) % len(SCALE)]
        heights.append(int(12_000 * math.exp(-4 * within) * math.sin(2 * math.pi * pitch * number / RATE)))
    return heights.tobytes()


if __name__ == "__main__":
    main()
