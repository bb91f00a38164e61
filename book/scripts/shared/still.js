/** The still picture of an explorer: what is seen where nothing moves. */

/** Keep the still picture and say why. */
export function stayStill(root, state, sentence) {
  root.dataset.state = state;
  const note = root.appendChild(document.createElement("p"));
  note.className = "explorer-trouble";
  note.setAttribute("role", "status");
  note.textContent = sentence;
}

/** The still picture is printed: it must have arrived by then, though it is hidden on the screen. */
export function keepStillForPaper(root) {
  const fetchIt = () =>
    root.querySelectorAll(".explorer-still img").forEach((image) => {
      image.loading = "eager";
    });
  const soon = () => setTimeout(fetchIt, 1500);
  if (document.readyState === "complete") soon();
  else window.addEventListener("load", soon);
  window.addEventListener("beforeprint", fetchIt);
}
