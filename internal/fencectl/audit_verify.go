package fencectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/storage"
)

func newAuditVerify(d *databaseFlags) *cobra.Command {
	a := &auditVerify{database: d}
	cmd := newCommand("audit verify", func(cmd *cobra.Command, _ []string) error { return a.run(cmd) })
	flags := cmd.Flags()
	flags.StringVar(&a.what.Resources, "resource", "", "only resources that match this, with * and ?")
	flags.StringArrayVar(&a.exports, "export", nil, "verify this export instead of a database; - is stdin; may be given again, in any order")
	flags.StringVar(&a.log, "log", "", "the history must contain what was recorded in this log of \"audit anchor\"")
	flags.StringArrayVar(&a.checkpoints, "checkpoint", nil, "a checkpoint of the log; may be given again; records after the last of them don't count (default the log's last)")
	flags.StringArrayVar(&a.receipts, "receipt", nil, "a receipt of guard.Receipt, or a file with one a line: the history must have it; may be given again")
	flags.StringVar(&a.key, "key", "", "the public key of the log, a .pub file")
	return cmd
}

type auditVerify struct {
	database    *databaseFlags
	what        audit.VerifyOptions
	exports     []string
	log         string
	key         string
	checkpoints []string
	receipts    []string
}

func (a *auditVerify) run(cmd *cobra.Command) (err error) {
	if a.what.Known, err = a.known(); err != nil {
		return err
	}
	if a.what.Receipts, err = a.readReceipts(); err != nil {
		return err
	}
	if n := len(a.checkpoints); n > 1 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d checkpoints agree: the log was only appended to between them\n", n)
	}
	report, err := a.verify(cmd)
	if err != nil {
		return err
	}
	if cli.AsJSON(cmd) {
		err = cli.WriteOne(cmd, report)
	} else if err = cli.Write(cmd, report.Receipts); err == nil {
		err = cli.Write(cmd, slices.Concat(report.Findings, report.Unexplained))
	}
	if err != nil {
		return err
	}
	if report.Resources == 0 && report.TotalFindings == 0 && len(report.Receipts) == 0 {
		return a.nothing(report)
	}
	if err := verified.Execute(cmd.ErrOrStderr(), report); err != nil {
		return err
	}
	switch {
	case report.TotalFindings > 0:
		return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("the history is not as Fencekit wrote it: %s", cli.Counted(report.TotalFindings, "finding"))}
	case hasReceipt(report, audit.ReceiptDiffers, audit.ReceiptNotThere):
		return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New("the history hasn't all that the receipts say: it lost or changed that, or a receipt was changed, or is of another database")}
	case hasReceipt(report, audit.ReceiptPruned):
		return errors.New("the entries of receipts were pruned: verify exports of the database and of its prunes instead (--export)")
	case hasReceipt(report, audit.ReceiptLeftOut):
		return errors.New("receipts are of resources that --resource or the export leaves out")
	case len(report.Unproven) > 0:
		some := report.Unproven[:min(len(report.Unproven), unprovenShown)]
		return fmt.Errorf("the entries of the last anchored heads of %s were pruned, such as %q: nothing proves their remaining entries\n"+
			"verify exports of the database and of its prunes instead (--export), and anchor more often than history_keep", cli.Counted(len(report.Unproven), "resource"), some)
	}
	return nil
}

func hasReceipt(r audit.Report, any ...audit.ReceiptStatus) bool {
	return slices.ContainsFunc(r.Receipts, func(r audit.ReceiptResult) bool { return slices.Contains(any, r.Status) })
}

func (a *auditVerify) readReceipts() (all []storage.Receipt, err error) {
	for _, text := range a.receipts {
		if file, err := os.ReadFile(text); err == nil {
			text = strings.TrimSpace(string(file))
		}
		for line := range strings.Lines(text) {
			r, err := storage.ParseReceipt(strings.TrimSpace(line))
			if err != nil {
				return nil, cli.UsageErrorf("--receipt: %w, and no file of that name can be read", err)
			}
			all = append(all, r)
		}
	}
	return all, nil
}

const unprovenShown = 5

var verified = template.Must(template.New("").Funcs(template.FuncMap{"counted": cli.Counted[int64]}).Parse(`
	{{- define "provable"}}{{counted .Operations "kept operation"}}, {{counted .Heads "anchored head"}}{{end -}}
	verified {{counted .Entries "entry"}} of {{counted .Resources "resource"}}, {{template "provable" .}}
	{{- if not .At.IsZero}}, as of {{.At.UTC.Format "2006-01-02 15:04:05Z"}}{{end}}
	{{- with .Unprovable}}{{if or .Operations .Heads}}; no longer provable, since pruned: {{template "provable" .}}{{end}}{{end}}
	{{- with .TotalUnexplained}}; {{.}} of {{counted $.Rejections "record"}} of rejections name a claim that isn't in the history{{end}}
	{{- with .LeftOut}}; {{counted . "anchored head"}} left out, since the export has not their resources{{end}}
`))

// nothing says why there is nothing to verify. Of a prune, an export has entries but no fences.
func (a *auditVerify) nothing(r audit.Report) error {
	switch files := strings.Join(a.exports, ", "); {
	case r.Entries > 0:
		return fmt.Errorf("no more than the export of a prune: %s; give the export of the database too", files)
	case r.At.IsZero():
		return fmt.Errorf("%s is empty", files)
	}
	return fmt.Errorf("there is nothing to verify: no resource%s", matching(a.what.Resources))
}

func (a *auditVerify) verify(cmd *cobra.Command) (audit.Report, error) {
	if len(a.exports) > 0 {
		return a.verifyExports(cmd.Context(), cmd.InOrStdin())
	}
	return ask(cmd.Context(), a.database, func(ctx context.Context, db *session) (audit.Report, error) {
		return db.history.Verify(ctx, a.what)
	})
}

func (a *auditVerify) verifyExports(ctx context.Context, stdin io.Reader) (audit.Report, error) {
	var readers []io.Reader
	for _, path := range a.exports {
		if path == "-" {
			readers = append(readers, stdin)
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return audit.Report{}, cli.UsageErrorf("--export: %w", err)
		}
		defer file.Close()
		readers = append(readers, file)
	}
	return audit.VerifyExports(ctx, a.what, readers...)
}

func (a *auditVerify) known() ([]audit.Head, error) {
	switch {
	case a.log == "" && len(a.checkpoints) > 0:
		return nil, cli.UsageErrorf("--checkpoint belongs to a log: give --log as well")
	case a.log == "" && a.key != "":
		return nil, cli.UsageErrorf("--key belongs to a log: give --log as well")
	case a.log == "":
		return nil, nil
	}
	key, err := readKey(a.key, anchor.ParsePublicKey)
	if err != nil {
		return nil, err
	}
	heads, err := a.loggedHeads(key)
	return heads, explainAnchor(err)
}

func (a *auditVerify) loggedHeads(key note.Verifier) ([]audit.Head, error) {
	paths := a.checkpoints
	if len(paths) == 0 {
		paths = []string{anchor.CheckpointFile(a.log)}
	}
	var checkpoints []*anchor.Checkpoint
	for _, path := range paths {
		c, err := readCheckpoint(path, key)
		if err != nil {
			return nil, err
		}
		checkpoints = append(checkpoints, c)
	}
	file, err := os.Open(a.log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	heads, err := anchor.ReadHeads(file, checkpoints...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.log, err)
	}
	return heads, nil
}
