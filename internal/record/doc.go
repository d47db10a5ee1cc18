// Package record is the history as it is stored: the rows of its tables, the hash of an entry,
// and the lines of an export.
//
// A row is kept exactly, also one that no guarded transaction can have written: who verifies a
// history has to see it as it is. An export has one form, whether "fencectl audit export" or a
// prune wrote it, and from its lines every hash can be computed again.
package record
