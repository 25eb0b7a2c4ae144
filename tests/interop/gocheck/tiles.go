package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	height = 8
	width  = 1 << height
	// So many records are proved one by one; all of them are compared with the tiles.
	proved = 300
)

// folder reads tiles as tlog-tiles names them, which leaves out the height that sumdb puts into a path.
type folder string

func (f folder) Height() int { return height }

func (f folder) SaveTiles([]tlog.Tile, [][]byte) {}

func (f folder) path(t tlog.Tile) string {
	name := strings.Replace(t.Path(), "tile/8/data/", "tile/entries/", 1)
	return filepath.Join(string(f), strings.Replace(name, "tile/8/", "tile/", 1))
}

// open gives a tile's file, and whether it is the full one: a log may drop a partial tile that has grown full.
func (f folder) open(t tlog.Tile) ([]byte, bool, error) {
	data, err := os.ReadFile(f.path(t))
	if err == nil || t.W == width {
		return data, t.W == width, err
	}
	full := t
	full.W = width
	data, err = os.ReadFile(f.path(full))
	return data, true, err
}

func (f folder) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, t := range tiles {
		data, full, err := f.open(t)
		if err != nil {
			return nil, err
		}
		hashes := t.W
		if full {
			hashes = width
		}
		if len(data) != hashes*tlog.HashSize {
			return nil, fmt.Errorf("%s has %d bytes", t.Path(), len(data))
		}
		all = append(all, data[:t.W*tlog.HashSize])
	}
	return all, nil
}

// records gives the leaf hash of every entry, read from the bundles.
func (f folder) records(size int64) []tlog.Hash {
	var hashes []tlog.Hash
	for bundle := int64(0); bundle*width < size; bundle++ {
		count := size - bundle*width
		if count > width {
			count = width
		}
		data, full, err := f.open(tlog.Tile{H: height, L: -1, N: bundle, W: int(count)})
		if err != nil {
			refuse("%v", err)
		}
		for i := int64(0); i < count; i++ {
			if len(data) < 2 || len(data) < 2+int(binary.BigEndian.Uint16(data)) {
				refuse("bundle %d is cut short", bundle)
			}
			length := int(binary.BigEndian.Uint16(data))
			hashes = append(hashes, tlog.RecordHash(data[2:2+length]))
			data = data[2+length:]
		}
		if len(data) != 0 && (!full || count == width) {
			refuse("bundle %d has bytes after its last entry", bundle)
		}
	}
	return hashes
}

func checkTree(f folder, size int64, root tlog.Hash) {
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, f)
	computed, err := tlog.TreeHash(size, reader)
	if err != nil || computed != root {
		refuse("the tiles do not make the root: %v", err)
	}
	records := f.records(size)
	var indexes []int64
	for index := range records {
		indexes = append(indexes, tlog.StoredHashIndex(0, int64(index)))
	}
	leaves, err := reader.ReadHashes(indexes)
	if err != nil {
		refuse("the tiles do not make the root: %v", err)
	}
	for index, leaf := range leaves {
		if leaf != records[index] {
			refuse("entry %d is not the one in the tree", index)
		}
	}
	step := size/proved + 1
	for index := int64(0); index < size; index += step {
		proof, err := tlog.ProveRecord(size, index, reader)
		if err != nil {
			refuse("record %d: %v", index, err)
		}
		if err := tlog.CheckRecord(proof, size, root, index, records[index]); err != nil {
			refuse("record %d: %v", index, err)
		}
	}
	fmt.Printf("%d records\n", size)
}

func checkConsistency(f folder, old int64, oldRoot tlog.Hash, size int64, root tlog.Hash) {
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, f)
	proof, err := tlog.ProveTree(size, old, reader)
	if err != nil {
		refuse("%v", err)
	}
	if err := tlog.CheckTree(proof, size, root, old, oldRoot); err != nil {
		refuse("%v", err)
	}
}

// checkPath prints level, index and width of a tile's path; the level of an entry bundle is -1.
func checkPath(path string) {
	name := strings.Replace(path, "tile/entries/", "tile/data/", 1)
	t, err := tlog.ParseTilePath(strings.Replace(name, "tile/", "tile/8/", 1))
	if err != nil {
		refuse("%v", err)
	}
	fmt.Println(t.L, t.N, t.W)
}
