// Run by node beside @noble/post-quantum: questions as JSON on standard input, the answers on standard output.
// It reads checkpoints and signature lines by itself and builds what C2SP tlog-cosignature has an ML-DSA-44
// cosigner sign; byte strings are base64, seeds and public keys too.
import { ml_dsa44 } from '@noble/post-quantum/ml-dsa.js';

const bytes = (text) => Uint8Array.from(Buffer.from(text, 'base64'));
const base64 = (data) => Buffer.from(data).toString('base64');

const number = (value) => {
  const data = Buffer.alloc(8);
  data.writeBigUInt64BE(BigInt(value));
  return data;
};

const prefixed = (text) => Buffer.concat([Buffer.from([Buffer.byteLength(text)]), Buffer.from(text)]);

const message = (name, time, checkpoint) => {
  const [origin, size, root] = checkpoint.split('\n');
  return Uint8Array.from(
    Buffer.concat([
      Buffer.from('subtree/v1\n\0'),
      prefixed(name),
      number(time),
      prefixed(origin),
      number(0),
      number(size),
      Buffer.from(root, 'base64'),
    ]),
  );
};

const commands = {
  // The line's signature: a key id, the time and what the key signed.
  verify: ({ name, key, checkpoint, line }) => {
    const [, signer, encoded] = line.trimEnd().split(' ');
    const data = Buffer.from(encoded, 'base64');
    const time = data.readBigUInt64BE(4);
    const signature = Uint8Array.from(data.subarray(12));
    return signer === name && ml_dsa44.verify(signature, message(name, time, checkpoint), bytes(key));
  },
  key: ({ seed }) => base64(ml_dsa44.keygen(bytes(seed)).publicKey),
  sign: ({ name, seed, checkpoint, time }) =>
    base64(
      Buffer.concat([
        number(time),
        ml_dsa44.sign(message(name, time, checkpoint), ml_dsa44.keygen(bytes(seed)).secretKey),
      ]),
    ),
};

let input = '';
for await (const chunk of process.stdin) input += chunk;
process.stdout.write(JSON.stringify(JSON.parse(input).map((question) => commands[question.ask](question))));
