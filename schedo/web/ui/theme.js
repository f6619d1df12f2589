// Sets the chosen theme before the first paint; without a choice the system's theme is followed.
try {
  const chosen = localStorage.getItem('schedo.theme');
  if (chosen === '"light"' || chosen === '"dark"') document.documentElement.dataset.theme = chosen.slice(1, -1);
} catch {
  // A browser may refuse its storage; then there is no choice to follow.
}
