package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAuditAnchor(d *databaseFlags, out *cli.Output) *cobra.Command {
	a := &anchoring{database: d, out: out}
	cmd := &cobra.Command{
		Use:   "anchor --log FILE --key FILE [flags]",
		Short: "Record the heads of all resources outside the database, signed",
		Long: `Append the heads of all resources that moved since the last run to a log, and
sign a checkpoint over the log, in FILE.checkpoint. Copy checkpoints to where
those who could tamper with database and log can't reach them: "audit verify"
finds with any of them what was changed since. Nothing is written to the
database, and a reader role is enough.

A resource that went back to a lower position, that is gone, or whose history is
another one than what was recorded is a violation (exit code 1): it is reported
by each run, and nothing of it is recorded. The other resources are.`,
		Args: cli.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&a.path, "log", "", "the log; required")
	flags.BoolVar(&a.begin, "begin", false, "for the first run: make the log, which must not exist")
	flags.StringVar(&a.key, "key", "", "the log's private key, of \"audit keygen\"; required")
	flags.DurationVar(&a.every, "every", 0, "keep running, and anchor this often")
	flags.BoolVar(&a.print, "print", false, "print the checkpoint instead of what was done")
	flags.StringVar(&a.continues, "continues", "", "for the first run of a new log: the log that it continues")
	flags.StringVar(&a.continuesKey, "continues-key", "", "the public key of that log")
	flags.BoolVar(&a.toEtcd, "etcd", false, "keep the checkpoint in etcd as well, as PREFIX/anchors/NAME with the name of the key")
	etcd := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	a.etcd.register(etcd)
	flags.AddFlagSet(etcd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.FillFromVariables(etcd); err != nil {
			return err
		}
		return a.start(cmd)
	}
	return cmd
}

// anchoring is one "audit anchor".
type anchoring struct {
	database *databaseFlags
	etcd     etcdFlags
	out      *cli.Output
	toEtcd   bool
	path     string
	key      string
	every    time.Duration
	print    bool
	begin    bool

	continues, continuesKey string

	signer *anchor.Signer
	log    *anchor.Log        // open between runs; nil after an error
	last   *anchor.Checkpoint // of the last run
}

func (a *anchoring) start(cmd *cobra.Command) error {
	switch {
	case a.path == "":
		return cli.UsageErrorf("--log is missing: the file to append heads to")
	case a.key == "":
		return cli.UsageErrorf("--key is missing: the private key of the log; make one with \"fencectl audit keygen\"")
	case a.every < 0:
		return cli.UsageErrorf("--every is %v, want more than 0, such as 1m", a.every)
	case (a.continues == "") != (a.continuesKey == ""):
		return cli.UsageErrorf("--continues and --continues-key belong together: give both")
	case (a.begin || a.continues != "") && a.every > 0:
		return cli.UsageErrorf("--begin and --continues are for the first run of a log: run it once without --every")
	}
	text, err := os.ReadFile(a.key)
	if err != nil {
		return cli.UsageErrorf("--key: %w", err)
	}
	if a.signer, err = anchor.ParseSigner(string(text)); err != nil {
		return cli.UsageErrorf("--key %s: %w", a.key, err)
	}
	defer a.close()
	if a.every == 0 {
		return a.run(cmd)
	}
	return a.keepRunning(cmd)
}

// keepRunning runs until it is interrupted, which is its good end. Violations are said at each
// run, and leave their exit code; when a server doesn't answer, the next run may do.
func (a *anchoring) keepRunning(cmd *cobra.Command) error {
	ticker := time.NewTicker(a.every)
	defer ticker.Stop()
	var violated error
	for {
		err := a.run(cmd)
		if cmd.Context().Err() != nil {
			return violated
		}
		var coded *cli.ExitError
		switch {
		case err == nil:
		case errors.As(err, &coded) && coded.Code == cli.ExitNotReady && !errors.Is(err, anchor.ErrInUse):
			fmt.Fprintf(cmd.ErrOrStderr(), "fencectl: %v\n", err)
		case errors.As(err, new(*violations)):
			fmt.Fprintf(cmd.ErrOrStderr(), "fencectl: %v\n", err)
			violated = err
		default:
			return err
		}
		select {
		case <-cmd.Context().Done():
			return violated
		case <-ticker.C:
		}
	}
}

// run anchors once, and prints what was done.
func (a *anchoring) run(cmd *cobra.Command) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.database.timeout)
	defer cancel()
	var done *anchor.Run
	var err error
	if a.toEtcd {
		done, err = a.anchorWithEtcd(ctx)
	} else {
		done, err = a.anchor(ctx, nil)
	}
	if err != nil {
		a.close()
		return explainAnchor(err)
	}
	if err := a.write(cmd, done); err != nil {
		return err
	}
	if len(done.Violations) > 0 {
		return &cli.ExitError{Code: cli.ExitViolated, Err: &violations{done.Violations}}
	}
	return nil
}

// anchor anchors in a log that has to match a checkpoint which was published, if there is one.
func (a *anchoring) anchor(ctx context.Context, published *anchor.Checkpoint) (done *anchor.Run, err error) {
	if err := a.open(published); err != nil {
		return nil, err
	}
	err = a.database.withDatabase(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		source, err := audit.Open(pool, a.database.schema)
		if err != nil {
			return err
		}
		done, err = a.log.Anchor(ctx, source)
		return err
	})
	if err == nil {
		a.last = done.Checkpoint
	}
	return done, err
}

// open opens the log, unless it is open and published is its own last checkpoint.
func (a *anchoring) open(published *anchor.Checkpoint) error {
	if a.log != nil && (published == nil || published.Note == a.last.Note) {
		return nil
	}
	a.close()
	var others []*anchor.Checkpoint
	if published != nil {
		others = append(others, published)
	}
	open := anchor.Open
	if a.begin {
		open = anchor.Create
	}
	log, err := open(a.path, a.signer, others...)
	if errors.Is(err, fs.ErrNotExist) && !a.begin {
		return fmt.Errorf("%w\n%s", err, "Restore the log, or begin one with --begin.")
	}
	if err != nil {
		return err
	}
	a.log = log
	if a.continues == "" {
		return nil
	}
	key, err := readPublicKey(a.continuesKey)
	if err != nil {
		return err
	}
	return a.log.Continue(a.continues, key)
}

func (a *anchoring) close() {
	if a.log != nil {
		_ = a.log.Close() // all that counts was synced
		a.log = nil
	}
}

func (a *anchoring) write(cmd *cobra.Command, done *anchor.Run) error {
	if a.print {
		_, err := fmt.Fprint(cmd.OutOrStdout(), done.Checkpoint.Note)
		return err
	}
	row := anchored{
		Log: done.Checkpoint.Origin, Records: done.Checkpoint.Size, Root: done.Checkpoint.Root.String(),
		Resources: done.Resources, Recorded: done.Recorded, Violations: []violation{}, Checkpoint: done.Checkpoint.Note,
	}
	for _, v := range done.Violations {
		row.Violations = append(row.Violations, violation{v.Logged.Resource, v.Logged.Seq, v.Found.Seq, v.String()})
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
	Checkpoint string      `json:"checkpoint"`
}

// violation is one of an anchored's; Found is 0 if the resource is gone.
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

// violations is the error that says what a run found.
type violations struct{ list []anchor.Violation }

// violationsShown bounds the error of a database that was put back whole.
const violationsShown = 20

func (v *violations) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the database contradicts the log in %d resources:", len(v.list))
	for i, found := range v.list {
		if i == violationsShown {
			fmt.Fprintf(&b, "\nand %d more: see -o json", len(v.list)-i)
			break
		}
		b.WriteString("\n" + found.String())
	}
	return b.String()
}
