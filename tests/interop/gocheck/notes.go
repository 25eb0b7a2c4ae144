package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// cosigner verifies the lines of a witness, which sumdb/note has no type for (C2SP tlog-cosignature, 0x04).
type cosigner struct {
	name string
	id   uint32
	key  ed25519.PublicKey
}

func (c cosigner) Name() string    { return c.name }
func (c cosigner) KeyHash() uint32 { return c.id }

func (c cosigner) Verify(text, signature []byte) bool {
	if len(signature) != 8+ed25519.SignatureSize {
		return false
	}
	time := binary.BigEndian.Uint64(signature)
	if time == 0 || time > math.MaxInt64 {
		return false
	}
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s", time, text)
	return ed25519.Verify(c.key, []byte(message), signature[8:])
}

func verifier(vkey string) note.Verifier {
	fields := strings.SplitN(vkey, "+", 3)
	if len(fields) == 3 {
		key, err := base64.StdEncoding.DecodeString(fields[2])
		if err == nil && len(key) == 1+ed25519.PublicKeySize && key[0] == 4 {
			sum := sha256.Sum256(append([]byte(fields[0]+"\n"), key...))
			id := binary.BigEndian.Uint32(sum[:])
			if fmt.Sprintf("%08x", id) != fields[1] {
				refuse("the key id of %s is wrong", fields[0])
			}
			return cosigner{fields[0], id, key[1:]}
		}
	}
	known, err := note.NewVerifier(vkey)
	if err != nil {
		refuse("%v", err)
	}
	return known
}

// openNote gives the text of a note that each of the keys has signed.
func openNote(data []byte, vkeys []string) string {
	var known []note.Verifier
	for _, vkey := range vkeys {
		known = append(known, verifier(vkey))
	}
	opened, err := note.Open(data, note.VerifierList(known...))
	if err != nil {
		refuse("%v", err)
	}
	if len(opened.Sigs) != len(vkeys) {
		refuse("%d of %d keys have signed", len(opened.Sigs), len(vkeys))
	}
	return opened.Text
}

// checkpoint gives size and root of an opened checkpoint.
func checkpoint(text string) (int64, tlog.Hash) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 {
		refuse("not a checkpoint")
	}
	return number(lines[1]), hash(lines[2])
}

func hash(text string) tlog.Hash {
	var root tlog.Hash
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) != tlog.HashSize {
		refuse("not a hash: %s", text)
	}
	copy(root[:], data)
	return root
}

// checkProof reads a tlog-proof as the specification has it: a header, perhaps an extra line, index and hashes.
func checkProof(data []byte, vkey string, entry []byte) {
	at := bytes.Index(data, []byte("\n\n"))
	if at < 0 {
		refuse("no empty line before the checkpoint")
	}
	lines := strings.Split(string(data[:at]), "\n")
	if lines[0] != "c2sp.org/tlog-proof@v1" {
		refuse("another header")
	}
	lines = lines[1:]
	if len(lines) > 0 && strings.HasPrefix(lines[0], "extra ") {
		lines = lines[1:]
	}
	if len(lines) == 0 || !strings.HasPrefix(lines[0], "index ") {
		refuse("no index")
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[0], "index "), 10, 64)
	if err != nil {
		refuse("the index is not a number")
	}
	var proof tlog.RecordProof
	for _, line := range lines[1:] {
		proof = append(proof, hash(line))
	}
	size, root := checkpoint(openNote(data[at+2:], []string{vkey}))
	if err := tlog.CheckRecord(proof, size, root, index, tlog.RecordHash(entry)); err != nil {
		refuse("%v", err)
	}
	fmt.Printf("record %d of %d\n", index, size)
}
