// The stream of updates of the live page: the row of each trace when it is evaluated.

const RECONNECT_MS = 5000;

let stream = null;
let wasDisconnected = false; // Verdicts may have been missed.

function showConnection(state, text) {
  $("connection").className = state;
  $("connection").textContent = text;
}

// A background tab is disconnected: browsers open about six connections to a host, which other tabs need.
function connect() {
  if (stream || document.hidden) return;
  stream = new EventSource("api/events");
  stream.addEventListener("open", () => {
    showConnection("live", "live");
    if (wasDisconnected) showView();
    wasDisconnected = false;
  });
  stream.addEventListener("error", () => {
    wasDisconnected = true;
    showConnection("lost", "not connected");
    // The browser reconnects by itself, unless the server has refused the stream.
    if (stream?.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(connect, RECONNECT_MS);
    }
  });
  stream.addEventListener("trace", (event) => {
    try { onVerdict(JSON.parse(event.data)); } catch { /* The view is updated with the next row. */ }
  });
}

function disconnect() {
  stream?.close();
  stream = null;
  wasDisconnected = true;
}

function followUpdates() {
  connect();
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
}
