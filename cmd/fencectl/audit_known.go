package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/mod/sumdb/note"

	"github.com/fencekit/fencekit/audit"
	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli"
)

// knownFlags are the flags of "audit verify" for heads that the history must contain.
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

// heads returns the heads in log and proofs, once these are found to be what was signed.
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
