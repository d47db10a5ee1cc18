package anchor

import "golang.org/x/mod/sumdb/tlog"

// tree is the Merkle tree over the added records. It keeps only the last hash of each level: the
// subtrees that a new record completes, and the subtrees that form the root, are the last ones of
// their levels.
type tree struct {
	size int64
	last [63]tlog.Hash
}

// ReadHashes implements tlog.HashReader for the indexes that add and root ask for.
func (t *tree) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, _ := tlog.SplitStoredHashIndex(index)
		hashes[i] = t.last[level]
	}
	return hashes, nil
}

// add appends a record. It returns the hashes of the subtrees that the record completes, from
// level 0 up. Their stored indexes begin at tlog.StoredHashIndex(0, index of the record).
func (t *tree) add(line []byte) []tlog.Hash {
	hashes, err := tlog.StoredHashes(t.size, line, t)
	if err != nil {
		panic(err) // it comes from ReadHashes
	}
	copy(t.last[:], hashes)
	t.size++
	return hashes
}

func (t *tree) root() tlog.Hash {
	root, err := tlog.TreeHash(t.size, t)
	if err != nil {
		panic(err) // it comes from ReadHashes
	}
	return root
}
