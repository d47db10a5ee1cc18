package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// ShardOf returns which of n shards, counted from 0, a resource belongs to. It depends on the
// name and n alone, and never changes with versions of Fencekit.
//
// The key of a name is what is between its first { and the next }, or the whole name if there
// is no such pair, or nothing in it: so names with the same {tag} belong to the same shard. A
// resource belongs to the shard i for which SHA-256 of i, as four bytes in big-endian order,
// followed by the key, is the highest (rendezvous hashing). So when n grows by one, resources
// move only to the new shard.
//
// n must be at least 1. ShardOf takes time in proportion to n.
func ShardOf(resource string, n int) int {
	data := append(make([]byte, 4, 128), keyOf(resource)...)
	best, highest := 0, [sha256.Size]byte{}
	for i := range n {
		binary.BigEndian.PutUint32(data, uint32(i))
		if sum := sha256.Sum256(data); bytes.Compare(sum[:], highest[:]) > 0 {
			best, highest = i, sum
		}
	}
	return best
}

// keyOf returns the part of a name that decides its shard.
func keyOf(resource string) string {
	if _, rest, found := strings.Cut(resource, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return tag
		}
	}
	return resource
}
