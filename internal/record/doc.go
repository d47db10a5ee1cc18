// Package record defines the stored form of the history: the rows of its tables, the hash of an
// entry, and the lines of an export.
//
// The types represent every value that the columns can hold, also values that no guarded
// transaction writes: verification has to see tampered rows unchanged. "fencectl audit export"
// and prunes write the same export format, and every hash can be recomputed from its lines.
package record
