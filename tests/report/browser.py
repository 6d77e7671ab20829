"""Reports in headless Chromium: what is cut on a screen, on a phone and on paper."""

from __future__ import annotations

import html as html_text
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium installed")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --hide-scrollbars --allow-file-access-from-files"
)
WIDTHS = {"1280": 1280, "390": 390, "A4": 703}  # pixels; A4 without its margins of 12 mm
PROBE = """<script>
function cut(frame) {
  const found = [], page = frame.contentDocument, width = frame.clientWidth;
  const say = (why, e) => found.push(
    `${frame.name} ${why} ${e.tagName} ${e.className.baseVal ?? e.className} `
    + (e.textContent || "").trim().slice(0, 60));
  for (const fold of page.querySelectorAll("details"))
    if (frame.name != "A4") fold.open = true;  // paper opens them by itself
    else if (!fold.querySelector(":not(summary)").checkVisibility({contentVisibilityAuto: true}))
      say("folded", fold);
  if (page.documentElement.scrollWidth > width) say("wider", page.documentElement);
  for (const e of page.querySelectorAll("main *:not(svg *)")) {
    const box = e.getBoundingClientRect();
    if (!box.width) continue;
    if (box.right > width + 1 || box.left < -1) say("outside", e);
    if (e.scrollWidth > e.clientWidth + 1 && e.clientWidth) say("cut", e);
    if (e.matches("td.n") && e.firstChild && !/[\\s\\u00a0–-]/.test(e.textContent.trim())) {
      const line = page.createRange();
      line.selectNodeContents(e);
      if (line.getClientRects().length > 1) say("broken", e);
    }
  }
  for (const e of page.querySelectorAll("svg text")) {
    const box = e.getBoundingClientRect(), whole = e.closest("svg").getBoundingClientRect();
    if (box.left < whole.left - 4 || box.right > whole.right + 4) say("letters", e);
  }
  return found;
}
window.onload = () => {
  document.title = JSON.stringify([...document.querySelectorAll("iframe")].flatMap(cut));
};
</script>"""


def browse(folder: Path, *arguments: str) -> str:
    """What headless Chromium prints."""
    command = [str(BROWSER), *FLAGS.split(), f"--user-data-dir={folder / 'profile'}", *arguments]
    quiet = {**os.environ, "HOME": str(folder)}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=900, env=quiet
    ).stdout


def cut(html: str, folder: Path) -> list[str]:
    """What of a page is cut, or hidden beside it, at every width: the width, why, and the
    element.
    """
    assert html.count("@media print") == 1
    (folder / "screen.html").write_text(html, "utf-8")
    (folder / "paper.html").write_text(html.replace("@media print", "@media all"), "utf-8")
    frames = "".join(
        f'<iframe name="{name}" src="{"paper" if name == "A4" else "screen"}.html"'
        f' style="border:0;width:{width}px;height:900px"></iframe>'
        for name, width in WIDTHS.items()
    )
    frame = folder / "frame.html"
    frame.write_text(f"<!doctype html><title>none</title>{PROBE}<body>{frames}", "utf-8")
    dom = browse(folder, "--window-size=2600,1000", "--dump-dom", frame.as_uri())
    (title,) = re.findall("<title>(.*?)</title>", dom, re.S)
    return list(json.loads(html_text.unescape(title)))
