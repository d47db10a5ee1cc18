package anchor

import (
	"fmt"

	"github.com/fencekit/fencekit/audit"
)

// Violation is a head in the log that the database contradicts.
type Violation struct {
	Logged audit.Head
	Found  audit.Head // the head in the database; zero if the resource is gone
}

// String describes the violation in one line.
func (v Violation) String() string {
	switch {
	case v.Found.Resource == "":
		return fmt.Sprintf("%s is gone: the log has position %d", v.Logged.Resource, v.Logged.Seq)
	case v.Found.Seq < v.Logged.Seq:
		return fmt.Sprintf("%s went back: the log has position %d, the database %d", v.Logged.Resource, v.Logged.Seq, v.Found.Seq)
	}
	return fmt.Sprintf("%s was rewritten: at position %d the log has hash %x, the database %x", v.Logged.Resource, v.Logged.Seq, v.Logged.Hash, v.Found.Hash)
}
