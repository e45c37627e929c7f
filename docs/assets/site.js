// What the theme's own elements lack: wide tables scroll with the keyboard, and copy buttons have names.
function complete() {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", `Table ${document.querySelectorAll(".md-typeset__scrollwrap[tabindex]").length}`);
  }
  document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((bar) => {
    const number = document.querySelectorAll(".md-code__nav[aria-label]").length + 1;
    bar.setAttribute("aria-label", `Code ${number}`);
  });
}
new MutationObserver(complete).observe(document.documentElement, { childList: true, subtree: true });
complete();
