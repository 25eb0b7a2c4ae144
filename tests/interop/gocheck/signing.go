package main

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// hashes is a log in memory: all the hashes that tlog stores for its records.
type hashes []tlog.Hash

func (h hashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	var read []tlog.Hash
	for _, index := range indexes {
		read = append(read, h[index])
	}
	return read, nil
}

func grow(word string, size int64) hashes {
	var stored hashes
	for record := int64(0); record < size; record++ {
		more, err := tlog.StoredHashes(record, []byte(fmt.Sprintf("%s %d", word, record)), stored)
		if err != nil {
			fail("%v", err)
		}
		stored = append(stored, more...)
	}
	return stored
}

func write(dir, name, data string) {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
		fail("%v", err)
	}
}

// signLog writes vkey and skey, and of the sizes, which have to grow, for the log and for a fork of it that has
// other records and the same key: "log-SIZE.note" and "log-OLD-SIZE.proof", "fork-SIZE.note" and so on.
func signLog(origin, dir string, sizes []int64) {
	skey, vkey, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		fail("%v", err)
	}
	signer, err := note.NewSigner(skey)
	if err != nil {
		fail("%v", err)
	}
	write(dir, "skey", skey+"\n")
	write(dir, "vkey", vkey)
	for _, kind := range []string{"log", "fork"} {
		stored := grow(kind+" record", sizes[len(sizes)-1])
		for i, size := range sizes {
			root, err := tlog.TreeHash(size, stored)
			if err != nil {
				fail("%v", err)
			}
			text := fmt.Sprintf("%s\n%d\n%s\n", origin, size, root)
			signed, err := note.Sign(&note.Note{Text: text}, signer)
			if err != nil {
				fail("%v", err)
			}
			write(dir, fmt.Sprintf("%s-%d.note", kind, size), string(signed))
			for _, old := range sizes[:i] {
				proof, err := tlog.ProveTree(size, old, stored)
				if err != nil {
					fail("%v", err)
				}
				var lines strings.Builder
				for _, one := range proof {
					fmt.Fprintf(&lines, "%s\n", one)
				}
				write(dir, fmt.Sprintf("%s-%d-%d.proof", kind, old, size), lines.String())
			}
		}
	}
	fmt.Println(vkey)
}
