package fencectl

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAuditAnchor(d *databaseFlags) *cobra.Command {
	a := &anchoring{database: d}
	cmd := newCommand("audit anchor", func(cmd *cobra.Command, _ []string) error { return a.run(cmd) })
	flags := cmd.Flags()
	flags.StringVar(&a.path, "log", "", "the log file; required")
	flags.BoolVar(&a.begin, "begin", false, "in the first run: create the log, which must not exist")
	flags.StringVar(&a.key, "key", "", "file with the log's private key, from \"audit keygen\"; required")
	requireFlags(cmd, "log", "key")
	return cmd
}

type anchoring struct {
	database *databaseFlags
	path     string
	key      string
	begin    bool
}

func readKey[K any](path string, parse func(text string) (K, error)) (key K, err error) {
	if path == "" {
		return key, cli.UsageErrorf("--key is missing: the public key of the log, a .pub file")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return key, cli.UsageErrorf("--key: %w", err)
	}
	if key, err = parse(string(text)); err != nil {
		return key, cli.UsageErrorf("--key %s: %w", path, err)
	}
	return key, nil
}

// checkPrivate rejects a private key that others can read, or its group can change: who has
// the key can sign another log. A group that reads is what mounted secrets have.
func checkPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o027 == 0 || runtime.GOOS == "windows" {
		return err
	}
	return fmt.Errorf("%s has mode %04o, so others than its owner may have read or changed it: run \"chmod 600 %[1]s\"; "+
		"if they may have, make a new key (fencectl audit keygen), and begin another log (--begin)", path, info.Mode().Perm())
}

func (a *anchoring) run(cmd *cobra.Command) error {
	signer, err := readKey(a.key, anchor.ParseSigner)
	if err != nil {
		return err
	}
	if err := checkPrivate(a.key); err != nil {
		return cli.UsageErrorf("--key: %w", err)
	}
	done, err := a.anchor(cmd.Context(), signer)
	if err != nil {
		return explainAnchor(err)
	}
	if err := a.write(cmd, done); err != nil {
		return err
	}
	switch {
	case len(done.Violations) > 0:
		return &cli.ExitError{Code: cli.ExitViolated, Err: &violations{done}}
	case len(done.Unproven) > 0:
		return &cli.ExitError{Code: cli.ExitInconclusive, Err: &violations{done}}
	}
	return nil
}

func (a *anchoring) anchor(ctx context.Context, signer *anchor.Signer) (*anchor.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, a.database.timeout)
	defer cancel()
	log, err := a.open(signer)
	if err != nil {
		return nil, err
	}
	defer log.Close() // Anchor has synced the records and the checkpoint
	return ask(ctx, a.database, func(ctx context.Context, db *session) (*anchor.Run, error) {
		return log.Anchor(ctx, db.history)
	})
}

func (a *anchoring) open(signer *anchor.Signer) (*anchor.Log, error) {
	open := anchor.Open
	if a.begin {
		open = anchor.Create
	}
	log, err := open(a.path, signer)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !a.begin:
		return nil, fmt.Errorf("%w: restore the log, or begin one with --begin", err)
	case errors.Is(err, fs.ErrExist):
		return nil, cli.UsageErrorf("the log %s exists already: leave out --begin", a.path)
	}
	return log, err
}

func (a *anchoring) write(cmd *cobra.Command, done *anchor.Run) error {
	c := done.Checkpoint
	row := anchored{c.Origin, c.Size, c.Root.String(), done.Resources, done.Recorded, []violation{}, []string{}, c.Note}
	for _, v := range done.Violations {
		row.Violations = append(row.Violations, violation{v.Logged.Resource, v.Logged.Seq, v.Found.Seq, v.String()})
	}
	for _, head := range done.Unproven {
		row.Unproven = append(row.Unproven, head.Resource)
	}
	return cli.WriteOne(cmd, row)
}

type anchored struct {
	Log        string      `json:"log"`
	Records    int64       `json:"records"` // in the log
	Root       string      `json:"root" column:"-"`
	Resources  int         `json:"resources"` // in the database
	Recorded   int         `json:"recorded"`  // by this run
	Violations []violation `json:"violations" column:",len"`
	Unproven   []string    `json:"unproven" column:"-"`
	Checkpoint string      `json:"checkpoint" column:"-"`
}

type violation struct {
	Resource string `json:"resource"`
	Position int64  `json:"position"`
	Found    int64  `json:"found"` // 0 if the resource is gone
	Text     string `json:"text"`
}

type violations struct{ *anchor.Run }

// violationsShown bounds the message: after a restore every resource may be in violation.
const violationsShown = 20

func (v *violations) Error() string {
	var lines []string
	say := func(title string, n int, text func(i int) string) {
		if n == 0 {
			return
		}
		lines = append(lines, title+" "+cli.Counted(n, "resource")+":")
		for i := range min(n, violationsShown) {
			lines = append(lines, text(i))
		}
		if n > violationsShown {
			lines = append(lines, fmt.Sprintf("and %d more: see -o json", n-violationsShown))
		}
	}
	say("the database contradicts the log in", len(v.Violations), func(i int) string { return v.Violations[i].String() })
	say("the database has nothing to compare with the log in", len(v.Unproven), func(i int) string {
		return fmt.Sprintf("%s is unproven: a prune deleted position %d, which the log has, or the history was replaced", v.Unproven[i].Resource, v.Unproven[i].Seq)
	})
	return strings.Join(lines, "\n")
}

func newAuditKeygen() *cobra.Command {
	var path string
	cmd := newCommand("audit keygen", func(cmd *cobra.Command, args []string) error {
		public, err := keygen(args[0], path)
		if err != nil {
			return explainAnchor(err)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "the private key is in %s, the public key in %s.pub\n", path, path)
		_, err = fmt.Fprintln(cmd.OutOrStdout(), public)
		return err
	})
	cmd.Flags().StringVar(&path, "out", "", "the file for the private key; required")
	requireFlags(cmd, "out")
	return cmd
}

func keygen(name, path string) (public string, err error) {
	private, public, err := anchor.NewKey(name)
	if err != nil {
		return "", err
	}
	if err := writeNew(path, private+"\n", 0o600); err != nil {
		return "", err
	}
	if err := writeNew(path+".pub", public+"\n", 0o644); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return public, syncDirectory(filepath.Dir(path))
}

func writeNew(path, text string, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, os.ErrExist) {
		return cli.UsageErrorf("%s exists, and is never overwritten: give another name with --out", path)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func readCheckpoint(path string, key note.Verifier) (*anchor.Checkpoint, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, explainAnchor(err)
	}
	c, err := anchor.ParseCheckpoint(string(text), key)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return c, explainAnchor(err)
}

func explainAnchor(err error) error {
	switch {
	case errors.Is(err, anchor.ErrNotProven):
		return &cli.ExitError{Code: cli.ExitViolated, Err: err}
	case err == nil, errors.As(err, new(*cli.ExitError)):
		return err
	case errors.Is(err, fence.ErrInvalid):
		return cli.UsageErrorf("%w", err)
	}
	return cli.NotReady(err)
}
