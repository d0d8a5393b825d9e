// In a browser: the page is a device. What it is told stands behind the # of its address.
import { shareOf, testOf, type Digits } from "./data";
import { percent, takePart } from "./device";
import { accuracy } from "./network";

const told = new URLSearchParams(location.hash.slice(1));
const log = document.querySelector("ol")!;
const state = document.querySelector("output")!;

function say(line: string): void {
  log.append(Object.assign(document.createElement("li"), { textContent: line }));
}

async function main(): Promise<void> {
  const [federation, joinToken] = [told.get("federation"), told.get("join")];
  if (!federation || !joinToken) throw new Error("the address lacks #federation=…&join=…, which `npm run page` prints");
  const digits = (await (await fetch("/digits.json")).json()) as Digits;
  const own = shareOf(digits, Number(told.get("share")), Number(told.get("of")));
  state.textContent = `taking part with ${own.labels.length} images, which stay in this tab`;
  const final = await takePart({ service: "", federation, joinToken, name: "browser" }, own, say);
  state.textContent = `finished: the final model gets ${percent(accuracy(final, testOf(digits)))} of the test images right`;
}

main().catch((error: Error) => {
  state.textContent = `stopped: ${error.message}`;
});
