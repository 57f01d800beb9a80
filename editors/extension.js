// A .weft file is opened -> `weftc lsp` is started and asked about it. Colours need none of this: they come from the grammar.
"use strict";

const path = require("path");
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

// The command of the settings; one with a slash is looked for in the open folder.
function serverCommand() {
  const [command, ...args] = vscode.workspace.getConfiguration("weft").get("server.command");
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri.fsPath;
  const local = folder && /[\\/]/.test(command) && !path.isAbsolute(command);
  return { command: local ? path.join(folder, command) : command, args };
}

async function start() {
  const selector = [{ language: "weft" }];
  client = new LanguageClient("weft", "Weft", serverCommand(), { documentSelector: selector });
  try {
    await client.start();
  } catch (error) {
    const { command } = serverCommand();
    const hint = 'Install it with: pip install "weftc[lsp]", or set weft.server.command.';
    vscode.window.showErrorMessage(`Weft: ${command} did not start (${error.message}). ${hint}`);
  }
}

async function activate(context) {
  const restart = async () => {
    await client?.stop().catch(() => {});
    await start();
  };
  context.subscriptions.push(vscode.commands.registerCommand("weft.restartServer", restart));
  await start();
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
