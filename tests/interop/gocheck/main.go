// gocheck lets Go's own sumdb packages judge a log's files.
//
//	gocheck note FILE VKEY              opens a signed note with one verifier key and prints its text
//	gocheck tree DIR SIZE ROOT          reads a tlog-tiles folder: every record proved under the base64 root
//	gocheck consistency DIR OLD OLDROOT SIZE ROOT   proves that one tree extends the other
package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func fail(format string, values ...interface{}) {
	fmt.Fprintf(os.Stderr, "gocheck: "+format+"\n", values...)
	os.Exit(1)
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		fail("not a number: %s", text)
	}
	return value
}

// folder reads tiles as tlog-tiles names them, which leaves out the height that sumdb puts into a path.
type folder string

func (f folder) Height() int { return 8 }

func (f folder) SaveTiles([]tlog.Tile, [][]byte) {}

func (f folder) path(t tlog.Tile) string {
	return filepath.Join(string(f), strings.Replace(t.Path(), "tile/8/", "tile/", 1))
}

func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, t := range tiles {
		data, err := os.ReadFile(f.path(t))
		if err != nil && t.W < 256 {
			full := t
			full.W = 256
			data, err = os.ReadFile(f.path(full))
			if err == nil {
				data = data[:t.W*tlog.HashSize]
			}
		}
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// records gives the leaf hash of every entry, read from the bundles.
func (f folder) records(size int64) []tlog.Hash {
	var hashes []tlog.Hash
	for bundle := int64(0); bundle*256 < size; bundle++ {
		width := size - bundle*256
		if width > 256 {
			width = 256
		}
		t := tlog.Tile{H: 8, L: -1, N: bundle, W: int(width)}
		name := strings.Replace(f.path(t), "tile/data/", "tile/entries/", 1)
		data, err := os.ReadFile(name)
		if err != nil {
			fail("%v", err)
		}
		for int64(len(hashes)) < bundle*256+width {
			if len(data) < 2 || len(data) < 2+int(binary.BigEndian.Uint16(data)) {
				fail("bundle %d is cut short", bundle)
			}
			length := int(binary.BigEndian.Uint16(data))
			hashes = append(hashes, tlog.RecordHash(data[2:2+length]))
			data = data[2+length:]
		}
		if len(data) != 0 {
			fail("bundle %d has bytes after its last entry", bundle)
		}
	}
	return hashes
}

func hash(text string) tlog.Hash {
	var root tlog.Hash
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) != tlog.HashSize {
		fail("not a root: %s", text)
	}
	copy(root[:], data)
	return root
}

func checkTree(dir string, size int64, root tlog.Hash) {
	f := folder(dir)
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, f)
	computed, err := tlog.TreeHash(size, reader)
	if err != nil || computed != root {
		fail("the tiles do not make the root: %v", err)
	}
	for index, leaf := range f.records(size) {
		proof, err := tlog.ProveRecord(size, int64(index), reader)
		if err != nil {
			fail("record %d: %v", index, err)
		}
		if err := tlog.CheckRecord(proof, size, root, int64(index), leaf); err != nil {
			fail("record %d: %v", index, err)
		}
	}
	fmt.Printf("%d records proved\n", size)
}

func main() {
	arguments := os.Args[1:]
	switch {
	case len(arguments) == 3 && arguments[0] == "note":
		data, err := os.ReadFile(arguments[1])
		if err != nil {
			fail("%v", err)
		}
		verifier, err := note.NewVerifier(arguments[2])
		if err != nil {
			fail("%v", err)
		}
		opened, err := note.Open(data, note.VerifierList(verifier))
		if err != nil {
			fail("%v", err)
		}
		fmt.Print(opened.Text)
	case len(arguments) == 4 && arguments[0] == "tree":
		checkTree(arguments[1], number(arguments[2]), hash(arguments[3]))
	case len(arguments) == 6 && arguments[0] == "consistency":
		old, size := number(arguments[2]), number(arguments[4])
		reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: hash(arguments[5])}, folder(arguments[1]))
		proof, err := tlog.ProveTree(size, old, reader)
		if err != nil {
			fail("%v", err)
		}
		if err := tlog.CheckTree(proof, size, hash(arguments[5]), old, hash(arguments[3])); err != nil {
			fail("%v", err)
		}
		fmt.Println("consistent")
	default:
		fail("usage: note FILE VKEY | tree DIR SIZE ROOT | consistency DIR OLD OLDROOT SIZE ROOT")
	}
}
