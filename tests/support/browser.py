"""A real browser for tests of pages: Chromium, headless, that may speak to this machine alone."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HERE = ("127.0.0.1", "localhost")
WAIT_MS = 20_000  # until something shows that has to
DESK, PHONE = {"width": 1180, "height": 820}, {"width": 390, "height": 844}


def found() -> str:
    """Where Chromium is; skips, or fails in CI, where there is none."""
    path = os.environ.get("FEDBOOST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        reason = "there is no Chromium: apt install chromium, or set FEDBOOST_CHROMIUM to its path"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@dataclass
class Browser:
    """One Chromium; whatever its pages ask of other machines, or complain of, is kept."""

    chromium: Any
    strangers: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def tab(self, *, phone: bool = False, dark: bool = False, scripts: bool = True) -> Any:
        """A fresh tab with cookies of its own."""
        context = self.chromium.new_context(
            viewport=PHONE if phone else DESK,
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            reduced_motion="reduce",
        )
        context.set_default_timeout(WAIT_MS)
        tab = context.new_page()
        context.on("request", lambda request: self._asked(request.url))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        tab.on("console", self._said)
        return tab

    def _asked(self, url: str) -> None:
        if urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname not in HERE:
            self.strangers.append(url)

    def _said(self, message: Any) -> None:
        """What the content security policy refuses is an error; an answer such as 403 is none."""
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.complaints.append(message.text)


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, as long as the tests of one file take."""
    path = found()
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield Browser(chromium)
        finally:
            chromium.close()


# Accessibility, as far as a script can see it

FAULTS = """() => {
  const faults = [];
  const seen = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== "hidden";
  const named = (e) => (e.getAttribute("aria-label") || e.textContent || "").trim();
  for (const e of document.querySelectorAll("input, select, textarea")) {
    if (e.type === "hidden") continue;
    if (!(e.labels && e.labels.length) && !e.getAttribute("aria-label"))
      faults.push(`no label: ${e.outerHTML.slice(0, 80)}`);
  }
  for (const e of document.querySelectorAll("a, button, summary"))
    if (!named(e)) faults.push(`no name: ${e.outerHTML.slice(0, 80)}`);
  let level = 0;
  for (const e of document.querySelectorAll("h1, h2, h3, h4")) {
    const own = Number(e.tagName[1]);
    if (own > level + 1) faults.push(`h${own} after h${level}: ${e.textContent}`);
    level = own;
  }
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  if (document.querySelectorAll("main").length !== 1) faults.push("not one main");
  if (!document.documentElement.lang) faults.push("no language");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`twice: #${id}`);
  for (const table of document.querySelectorAll("table"))
    if (!table.querySelector("th[scope=col]")) faults.push("a table without heads");
  for (const e of document.querySelectorAll("progress, svg[role=img]"))
    if (!e.getAttribute("aria-label")) faults.push(`no words: ${e.outerHTML.slice(0, 60)}`);
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = rgb(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !seen(e) || e.closest(".hidden")) continue;
    const style = getComputedStyle(e);
    const colour = e.closest("svg") ? style.fill : style.color;
    const [one, other] = [light(rgb(colour)), light(ground(e))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const large = parseFloat(style.fontSize) >= 24;
    if (ratio < (large ? 3 : 4.5))
      faults.push(`contrast ${ratio.toFixed(2)}: ${walk.currentNode.textContent.slice(0, 40)}`);
  }
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  if (wide > 0) faults.push(`${wide} pixels wider than the screen`);
  return faults;
}"""


def faults(tab: Any) -> list[str]:
    """What is wrong with the page in a tab for whoever hears it, or sees little."""
    told: list[str] = tab.evaluate(FAULTS)
    return told
