package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli"
)

func (a *anchoring) write(cmd *cobra.Command, done *anchor.Run) error {
	if a.print {
		_, err := fmt.Fprint(cmd.OutOrStdout(), done.Checkpoint.Note)
		return err
	}
	row := anchored{
		Log: done.Checkpoint.Origin, Records: done.Checkpoint.Size, Root: done.Checkpoint.Root.String(),
		Resources: done.Resources, Recorded: done.Recorded, Violations: []violation{}, Unproven: []string{}, Checkpoint: done.Checkpoint.Note,
	}
	for _, v := range done.Violations {
		row.Violations = append(row.Violations, violation{v.Logged.Resource, v.Logged.Seq, v.Found.Seq, v.String()})
	}
	for _, head := range done.Unproven {
		row.Unproven = append(row.Unproven, head.Resource)
	}
	return cli.WriteOne(cmd.OutOrStdout(), a.out.Format, row)
}

// anchored is what "audit anchor" prints.
type anchored struct {
	Log        string      `json:"log"`
	Records    int64       `json:"records"` // in the log
	Root       string      `json:"root"`
	Resources  int         `json:"resources"` // in the database
	Recorded   int         `json:"recorded"`  // by this run
	Violations []violation `json:"violations"`
	Unproven   []string    `json:"unproven"` // resources
	Checkpoint string      `json:"checkpoint"`
}

// violation is an element of anchored.Violations. Found is 0 if the resource is gone.
type violation struct {
	Resource string `json:"resource"`
	Position int64  `json:"position"`
	Found    int64  `json:"found"`
	Text     string `json:"text"`
}

func (anchored) Columns() []string {
	return []string{"log", "records", "resources", "recorded", "violations"}
}

func (a anchored) Cells() []string {
	return []string{a.Log, strconv.FormatInt(a.Records, 10), strconv.Itoa(a.Resources), strconv.Itoa(a.Recorded), strconv.Itoa(len(a.Violations))}
}

// violations is the error of a run that found violations, or heads that it couldn't compare.
type violations struct {
	list     []anchor.Violation
	unproven []audit.Head
}

// violationsShown bounds the message: after a restore every resource may be in violation.
const violationsShown = 20

func (v *violations) Error() string {
	var parts []string
	if len(v.list) > 0 {
		parts = append(parts, shownLines("the database contradicts the log in", v.list, anchor.Violation.String))
	}
	if len(v.unproven) > 0 {
		parts = append(parts, shownLines("the database has nothing to compare with the log in", v.unproven, func(head audit.Head) string {
			return fmt.Sprintf("%s is unproven: a prune deleted position %d, which the log has, or the history was replaced", head.Resource, head.Seq)
		}))
	}
	return strings.Join(parts, "\n")
}

func shownLines[T any](title string, all []T, text func(T) string) string {
	var b strings.Builder
	b.WriteString(title + " " + cli.Counted(len(all), "resource") + ":")
	for i, one := range all {
		if i == violationsShown {
			fmt.Fprintf(&b, "\nand %d more: see -o json", len(all)-i)
			break
		}
		b.WriteString("\n" + text(one))
	}
	return b.String()
}
