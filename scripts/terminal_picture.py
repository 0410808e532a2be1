#!/usr/bin/env python3
"""Runs a command in a terminal and writes what it shows as an SVG picture:

    scripts/terminal_picture.py OUTPUT.svg [--columns N] [--show TEXT] [--first N] [--last N] -- COMMAND...

The picture begins with the prompt "$ TEXT", by default the command. Lines are wrapped as a terminal wraps them. `--first`
and `--last` keep so many lines only. The exit status of the command does not matter: a failing command is a picture too.
"""

import argparse
import fcntl
import html
import os
import pty
import re
import shlex
import shutil
import struct
import sys
import termios

COLOURS = ("#3b4252", "#bf616a", "#a3be8c", "#ebcb8b", "#81a1c1", "#b48ead", "#88c0d0", "#e5e9f0")
BACKGROUND, TEXT, DIM = "#242933", "#d8dee9", "#8b94a7"
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14  # of a character, of a line, around the text


def run(command, columns):
    """The output of the command in a terminal of so many columns."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns))
        os.execvp(command[0], command)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    output = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:  # the terminal is closed
            break
        if not data:
            break
        output += data
    os.waitpid(pid, 0)
    return output.decode("utf-8", "replace")


def styled(line, style):
    """Divides a line into (style, text) and returns them with the style at its end."""
    line = line.rsplit("\r", 1)[-1]  # what a later text overwrites
    parts = []
    for text in re.split(r"(\x1b\[[0-9;?]*[A-Za-z])", line):
        if not text.startswith("\x1b"):
            if text:
                parts.append((style, text))
        elif text.endswith("m"):
            for code in (int(code or 0) for code in text[2:-1].split(";")):
                colour, bold = style
                if code == 0:
                    style = ("", False)
                elif code == 1:
                    style = (colour, True)
                elif code == 2:
                    style = (DIM, bold)
                elif 30 <= code <= 37 or 90 <= code <= 97:
                    style = (COLOURS[code % 10], bold)
                elif code == 39:
                    style = ("", bold)
    return parts, style


def wrapped(parts, columns):
    """The lines of (style, text) that a terminal makes of a long one."""
    lines, left = [[]], columns
    for style, text in parts:
        while text:
            if left == 0:
                lines.append([])
                left = columns
            lines[-1].append((style, text[:left]))
            text, left = text[left:], max(0, left - len(text))
    return lines


def picture(lines, columns):
    """The SVG of lines of (style, text)."""
    width = columns * WIDTH + 2 * MARGIN
    height = len(lines) * HEIGHT + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
           f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">',
           f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>']
    for number, parts in enumerate(lines):
        spans = "".join(
            f'<tspan fill="{colour or TEXT}"{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""}>'
            f"{html.escape(text)}</tspan>" for (colour, bold), text in parts)
        out.append(f'<text x="{MARGIN}" y="{MARGIN + (number + 0.75) * HEIGHT:.0f}" '
                   f'xml:space="preserve">{spans}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("--columns", type=int, default=120)
    parser.add_argument("--show")
    parser.add_argument("--first", type=int)
    parser.add_argument("--last", type=int)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    if shutil.which(args.command[0]) is None:
        parser.error(f"there is no program {args.command[0]}")
    style, lines = ("", False), []
    text = run(args.command, args.columns).replace("\r\n", "\n").rstrip("\n")
    for line in text.split("\n"):
        parts, style = styled(line, style)
        lines += wrapped(parts, args.columns)
    lines = lines[:args.first]
    if args.last:
        lines = lines[-args.last:]
    prompt = args.show or shlex.join(args.command)
    lines.insert(0, [(("#a3be8c", True), "$ "), (("", True), prompt[:args.columns - 2])])
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(picture(lines, args.columns))
    print(f"{args.output}: {len(lines)} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
