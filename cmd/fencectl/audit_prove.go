package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/fence"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAuditProve(out *cli.Output) *cobra.Command {
	var log, key, checkpoint string
	cmd := &cobra.Command{
		Use:   "prove RESOURCE --log FILE --key FILE.pub [flags]",
		Short: "Print an inclusion proof for the head of one resource",
		Long: `Print a proof that a log contains the last head of a resource that a signed
checkpoint covers. With the proof and the public key, "audit verify --proof"
verifies the history of that resource up to the head. It needs no log, and the
proof doesn't reveal the names of other resources. The format is a tlog-proof of
C2SP with the log's record as its extra data.`,
		Args: cli.OneArg("RESOURCE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if log == "" {
				return cli.UsageErrorf("--log is missing: the file that \"audit anchor\" appends to")
			}
			proof, err := prove(args[0], log, key, cmp.Or(checkpoint, anchor.CheckpointFile(log)))
			if err != nil {
				return explainAnchor(err)
			}
			if out.Format == cli.FormatTable {
				_, err = fmt.Fprint(cmd.OutOrStdout(), proof)
				return err
			}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, resourceProof{args[0], proof})
		},
	}
	cmd.Flags().StringVar(&log, "log", "", "the log; required")
	cmd.Flags().StringVar(&key, "key", "", "the log's public key; required")
	cmd.Flags().StringVar(&checkpoint, "checkpoint", "", "the checkpoint that covers the record; if empty, the log's last one")
	return cmd
}

// resourceProof is what "audit prove" writes, except as text.
type resourceProof struct {
	Resource string `json:"resource"`
	Proof    string `json:"proof"` // the whole text, as a file for "audit verify --proof"
}

func (resourceProof) Columns() []string { return []string{"resource", "proof"} }

func (p resourceProof) Cells() []string { return []string{p.Resource, p.Proof} }

func prove(resource, log, key, checkpoint string) (string, error) {
	public, err := readPublicKey(key)
	if err != nil {
		return "", err
	}
	c, err := readCheckpoint(checkpoint, public)
	if err != nil {
		return "", err
	}
	file, err := os.Open(log)
	if err != nil {
		return "", err
	}
	defer file.Close()
	proof, err := anchor.Prove(file, c, resource)
	if errors.Is(err, fence.ErrInvalid) {
		err = &cli.ExitError{Code: cli.ExitInconclusive, Err: fmt.Errorf("%s covers no head of a resource %q", checkpoint, resource)}
	}
	return proof, err
}

func readPublicKey(path string) (note.Verifier, error) {
	if path == "" {
		return nil, cli.UsageErrorf("--key is missing: the public key of the log, a .pub file")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, cli.UsageErrorf("--key: %w", err)
	}
	key, err := anchor.ParsePublicKey(string(text))
	if err != nil {
		return nil, cli.UsageErrorf("--key %s: %w", path, err)
	}
	return key, nil
}

func readCheckpoint(path string, key note.Verifier) (*anchor.Checkpoint, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := anchor.ParseCheckpoint(string(text), key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// explainAnchor gives an error of a log, a checkpoint or a proof its exit code.
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
