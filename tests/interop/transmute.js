// Run by node beside @transmute/cose: questions as JSON on standard input, the answers on standard output.
// Byte strings are hexadecimal. An answer is what @transmute/cose says, or null where it refuses.
import cose from '@transmute/cose';

const bytes = (hex) => Uint8Array.from(Buffer.from(hex, 'hex'));
const buffer = (hex) => cose.cbor.toArrayBuffer(bytes(hex));
const hex = (data) => Buffer.from(data).toString('hex');
const verifier = (key) => cose.detached.verifier({ resolver: { resolve: async () => key } });

// The key that a message's own kid names, as a trust store would look it up.
const byKid = (keys) => async (message) => {
  const [protectedHeader] = cose.cbor.decode(message).value;
  const key = keys[hex(cose.cbor.decode(protectedHeader).get(4))];
  if (!key) throw new Error('no such key');
  return key;
};

const commands = {
  inclusion: async ({ entry, receipt, key }) =>
    hex(
      await cose.receipt.inclusion.verify({
        entry: await cose.receipt.leaf(bytes(entry)),
        receipt: buffer(receipt),
        verifier: verifier(key),
      }),
    ),
  consistency: async ({ oldRoot, root, receipt, key }) =>
    (await cose.receipt.consistency.verify({
      oldRoot: buffer(oldRoot),
      newRoot: buffer(root),
      receipt: buffer(receipt),
      verifier: verifier(key),
    })) || null,
  transparent: async ({ transparent, payload, keys }) => {
    const whole = await cose.receipt.verifier({ resolve: byKid(keys) });
    const said = await whole.verify({ coseSign1: buffer(transparent), payload: buffer(payload) });
    return { payload: hex(said.payload), roots: said.receipts.map(hex) };
  },
  remove: async ({ transparent }) => hex(await cose.receipt.remove(buffer(transparent))),
  thumbprint: async ({ key }) =>
    hex(await cose.key.thumbprint.calculateCoseKeyThumbprint(cose.cbor.decode(buffer(key)))),
  // A receipt and a transparent statement of its own making; labels in the order of a deterministic encoding.
  issue: async ({ statement, entries, index, kid, names, secret }) => {
    const leaves = await Promise.all(entries.map((entry) => cose.receipt.leaf(bytes(entry))));
    const receipt = await cose.receipt.inclusion.issue({
      protectedHeader: new Map([[1, -7], [4, buffer(kid)], [15, new Map([[1, names[0]], [2, names[1]]])], [395, 1]]),
      entry: index,
      entries: leaves,
      signer: cose.detached.signer({ remote: cose.crypto.signer({ privateKeyJwk: secret }) }),
    });
    return hex(await cose.receipt.add(buffer(statement), cose.cbor.toArrayBuffer(new Uint8Array(receipt))));
  },
};

let input = '';
for await (const chunk of process.stdin) input += chunk;
const answers = [];
for (const question of JSON.parse(input)) {
  try {
    answers.push(await commands[question.ask](question));
  } catch (error) {
    // A mistake in this file must not look like a refusal.
    if (error instanceof TypeError || error instanceof ReferenceError) throw error;
    answers.push(null);
  }
}
process.stdout.write(JSON.stringify(answers));
