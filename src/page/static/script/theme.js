// The colours: light, dark, or those of the system. The choice is stored in the browser.

const THEMES = ["auto", "light", "dark"];
const THEME_TEXTS = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" };
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

/** The stored choice. A browser may deny storage to a report file. */
function storedTheme() {
  try {
    const stored = localStorage.getItem("theme");
    return THEMES.includes(stored) ? stored : "auto";
  } catch { return "auto"; }
}

let theme = storedTheme();

function storeTheme() {
  try { localStorage.setItem("theme", theme); } catch { /* The choice applies until the page is closed. */ }
}

function applyTheme() {
  const systemTheme = prefersDark.matches ? "dark" : "light";
  document.documentElement.dataset.theme = theme === "auto" ? systemTheme : theme;
  $("theme").textContent = THEME_TEXTS[theme];
  $("theme").setAttribute("aria-label", `Colours: ${theme}`);
}

$("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  storeTheme();
  applyTheme();
});
prefersDark.addEventListener("change", applyTheme);
applyTheme();
