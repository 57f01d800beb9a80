// Questions from the page -> answers from weftc.editor.playground, in Python, off the page's thread.
// Bundled by website/build.py: pyodide/ (the interpreter), numpy.zip, python.zip (weftc, its runtime's file format, networkx).
"use strict";

let playground;

async function unpacked(pyodide, name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  pyodide.unpackArchive(await answer.arrayBuffer(), "zip", { extractDir: "/lib/weft" });
}

async function start() {
  importScripts("pyodide/pyodide.js");
  postMessage({ status: "starting Python…" });
  const pyodide = await loadPyodide({ indexURL: "pyodide/" });
  postMessage({ status: "loading NumPy and Weft…" });
  await Promise.all(["numpy.zip", "python.zip"].map((name) => unpacked(pyodide, name)));
  pyodide.runPython("import sys; sys.path.insert(0, '/lib/weft')");
  playground = pyodide.pyimport("weftc.editor.playground");
  self.toPython = (value) => pyodide.toPy(value);
  postMessage({ ready: true });
}

const started = start().catch((error) => postMessage({ status: `it did not start: ${error.message}` }));

onmessage = async ({ data: { id, method, args } }) => {
  await started;
  try {
    const given = args.map((value) => (value !== null && typeof value === "object" ? self.toPython(value) : value));
    const found = playground[method](...given);
    const result = found && found.toJs ? found.toJs({ dict_converter: Object.fromEntries, create_proxies: false }) : found;
    found?.destroy?.();
    postMessage({ id, result });
  } catch (error) {
    postMessage({ id, failure: String(error.message || error) });
  }
};
