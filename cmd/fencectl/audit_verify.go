package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAuditVerify(d *databaseFlags, out *cli.Output) *cobra.Command {
	a := &auditVerify{database: d, out: out}
	cmd := &cobra.Command{
		Use:   "verify [flags]",
		Short: "Verify that the history is as Fencekit wrote it",
		Long: `Verify one snapshot of the history in a database, without blocking writers, or
verify exports without a database: hashes, positions, claims, fences,
checkpoints and kept operations. Each finding is something that Fencekit alone
never causes (exit code 1). The reader role is enough.

Records of rejections that name a claim which isn't in the history are listed as
well. They decide nothing: the claim may have been pruned, or lost in a failover
or a restore, and any application may add such a record, without a hash.

The owner of the tables could rewrite the whole history consistently. To detect
that, compare it with the heads that "audit anchor" recorded: pass the log, or a
copy of it, with --log, and checkpoints that were kept out of the owner's reach
with --checkpoint. Without the log, pass proofs from "audit prove" with --proof.

The exit code is 2 if there is nothing to verify, or if the last recorded head
of a resource can no longer be compared because the entries were pruned.

Findings go to stdout. With -o json they are part of a report that also counts
what was verified. For what this proves, and what it doesn't, see
docs/audit.md.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.run(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&a.what.Resources, "resource", "", "only resources that match this, with * and ?")
	flags.StringArrayVar(&a.exports, "export", nil, "verify this export instead of a database; - is stdin; may be given again, in any order")
	a.known.register(flags)
	flags.IntVar(&a.what.MaxFindings, "max-findings", 1000, "print at most so many findings")
	return cmd
}

type auditVerify struct {
	database *databaseFlags
	out      *cli.Output
	what     audit.VerifyOptions
	exports  []string
	known    knownFlags
}

func (a *auditVerify) run(cmd *cobra.Command) error {
	if a.what.MaxFindings < 1 {
		return cli.UsageErrorf("--max-findings has to be at least 1")
	}
	known, err := a.known.heads()
	if err != nil {
		return err
	}
	a.what.Known = known
	if n := len(a.known.checkpoints); n > 1 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d checkpoints agree: the log was only appended to between them\n", n)
	}
	a.what.Progress = showEntries(cmd.ErrOrStderr())
	report, err := a.verify(cmd)
	if err != nil {
		return err
	}
	if err := a.write(cmd.OutOrStdout(), report); err != nil {
		return err
	}
	if report.Resources == 0 && report.TotalFindings == 0 {
		return a.nothing(report)
	}
	if err := verified.Execute(cmd.ErrOrStderr(), report); err != nil {
		return err
	}
	switch {
	case report.TotalFindings > 0:
		return &cli.ExitError{Code: cli.ExitViolated, Err: fmt.Errorf("the history is not as Fencekit wrote it: %s", cli.Counted(report.TotalFindings, "finding"))}
	case len(report.Unproven) > 0:
		some := report.Unproven[:min(len(report.Unproven), unprovenShown)]
		return &cli.ExitError{Code: cli.ExitInconclusive, Err: fmt.Errorf("the entries of the last anchored heads of %s were pruned, such as %q: nothing proves their remaining entries\n"+
			"verify exports of the database and of its prunes instead (--export), and anchor more often than history_keep", cli.Counted(len(report.Unproven), "resource"), some)}
	}
	return nil
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

const entriesAtLeast = 1_000_000

func showEntries(w io.Writer) func(done, all int64) {
	var next int64
	return func(done, all int64) {
		step := max(all/10, entriesAtLeast)
		if next == 0 {
			next = step
		}
		if done < next {
			return
		}
		next = done + step
		of := ""
		if all > 0 {
			of = " of about " + strconv.FormatInt(all, 10)
		}
		fmt.Fprintf(w, "%d%s entries\n", done, of)
	}
}

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

func (a *auditVerify) verify(cmd *cobra.Command) (report audit.Report, err error) {
	if len(a.exports) > 0 {
		return a.verifyExports(cmd.Context(), cmd.InOrStdin())
	}
	err = a.database.withHistory(cmd.Context(), func(ctx context.Context, _ *pgxpool.Pool, history *audit.Database) (err error) {
		report, err = history.Verify(ctx, a.what)
		return err
	})
	return report, err
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

func (a *auditVerify) write(w io.Writer, r audit.Report) error {
	if a.out.Format == cli.FormatJSON {
		return cli.WriteOne(w, a.out.Format, r)
	}
	var rows []finding
	for _, f := range slices.Concat(r.Findings, r.Unexplained) {
		rows = append(rows, finding{f})
	}
	return cli.WriteList(w, a.out.Format, rows)
}

type finding struct{ audit.Finding }

// Columns have another name for the position than JSON.
func (f finding) Columns() any {
	return struct {
		Kind            audit.FindingKind
		Resource        string
		Position        int64 `json:",omitempty"`
		Text            string
		Expected, Found string
	}{f.Kind, f.Resource, f.Seq, f.Text, f.Expected, f.Found}
}

type knownFlags struct {
	log         string
	key         string
	checkpoints []string
	proofs      []string
}

func (a *knownFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&a.log, "log", "", "the history must contain what was recorded in this log of \"audit anchor\"")
	flags.StringArrayVar(&a.checkpoints, "checkpoint", nil, "a checkpoint of the log; may be given again; records after the last of them don't count (default the log's last)")
	flags.StringArrayVar(&a.proofs, "proof", nil, "the history must contain what is in this proof of \"audit prove\"; may be given again")
	flags.StringVar(&a.key, "key", "", "the public key of log and proofs, a .pub file")
}

func (a *knownFlags) heads() ([]audit.Head, error) {
	switch {
	case a.log == "" && len(a.checkpoints) > 0:
		return nil, cli.UsageErrorf("--checkpoint belongs to a log: give --log as well")
	case a.log == "" && len(a.proofs) == 0 && a.key != "":
		return nil, cli.UsageErrorf("--key belongs to a log or a proof: give --log or --proof as well")
	case a.log == "" && len(a.proofs) == 0:
		return nil, nil
	}
	key, err := readPublicKey(a.key)
	if err != nil {
		return nil, err
	}
	heads, err := a.provenHeads(key)
	if err == nil && a.log != "" {
		var logged []audit.Head
		logged, err = a.loggedHeads(key)
		heads = append(heads, logged...)
	}
	return heads, explainAnchor(err)
}

func (a *knownFlags) loggedHeads(key note.Verifier) ([]audit.Head, error) {
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

func (a *knownFlags) provenHeads(key note.Verifier) (heads []audit.Head, err error) {
	for _, path := range a.proofs {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		head, err := anchor.ParseProof(string(text), key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		heads = append(heads, head)
	}
	return heads, nil
}
