// gocheck lets Go's own sumdb packages judge a log's files, and write a log of their own.
//
//	gocheck note FILE VKEY...                       every key has signed the note; prints its text
//	gocheck proof FILE VKEY ENTRY                   a tlog-proof shows the entry in the file ENTRY to be in the log
//	gocheck tree DIR SIZE ROOT                      the tiles and entry bundles in DIR make the base64 root
//	gocheck consistency DIR OLD OLDROOT SIZE ROOT   one tree extends the other
//	gocheck path PATH                               what the tile path names: level, index and width
//	gocheck sign ORIGIN DIR SIZE...                 writes a key, and checkpoints and proofs of a log and its fork
//
// It ends with 0 if all holds, with 1 if Go refuses what it was shown, with 2 if it could not look.
package main

import (
	"fmt"
	"os"
	"strconv"
)

func refuse(format string, values ...interface{}) {
	fmt.Fprintf(os.Stderr, "refused: "+format+"\n", values...)
	os.Exit(1)
}

func fail(format string, values ...interface{}) {
	fmt.Fprintf(os.Stderr, "gocheck: "+format+"\n", values...)
	os.Exit(2)
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || value < 0 {
		fail("not a number: %s", text)
	}
	return value
}

func read(name string) []byte {
	data, err := os.ReadFile(name)
	if err != nil {
		fail("%v", err)
	}
	return data
}

func main() {
	if len(os.Args) < 2 {
		fail("usage: note | proof | tree | consistency | path | sign, see the source")
	}
	command, rest := os.Args[1], os.Args[2:]
	switch {
	case command == "note" && len(rest) >= 2:
		fmt.Print(openNote(read(rest[0]), rest[1:]))
	case command == "proof" && len(rest) == 3:
		checkProof(read(rest[0]), rest[1], read(rest[2]))
	case command == "tree" && len(rest) == 3:
		checkTree(folder(rest[0]), number(rest[1]), hash(rest[2]))
	case command == "consistency" && len(rest) == 5:
		checkConsistency(folder(rest[0]), number(rest[1]), hash(rest[2]), number(rest[3]), hash(rest[4]))
	case command == "path" && len(rest) == 1:
		checkPath(rest[0])
	case command == "sign" && len(rest) >= 3:
		var sizes []int64
		for _, size := range rest[2:] {
			sizes = append(sizes, number(size))
		}
		signLog(rest[0], rest[1], sizes)
	default:
		fail("usage: note | proof | tree | consistency | path | sign, see the source")
	}
}
