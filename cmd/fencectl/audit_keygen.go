package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/audit/anchor"
	"github.com/fencekit/fencekit/internal/cli"
)

func newAuditKeygen(out *cli.Output) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "keygen NAME --out FILE [flags]",
		Short: "Generate the key pair of a log",
		Long: `Generate the key pair that signs the checkpoints of one log, and print the
public key. NAME becomes the log's origin. It has to be unique and free of
spaces and plus signs, ideally a URL without its scheme, such as
example.com/shop/2027.

The private key goes to FILE, and only "audit anchor" needs it. The public key
goes to FILE.pub. The command never overwrites a file. Each log needs a key pair
and a name of its own.`,
		Args: cli.OneArg("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if path == "" {
				return cli.UsageErrorf("--out is missing: the file for the private key")
			}
			public, err := keygen(args[0], path)
			if err != nil {
				return explainAnchor(err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "the private key is in %s, the public key in %s.pub\n", path, path)
			if out.Format == cli.FormatTable {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), public)
				return err
			}
			return cli.WriteOne(cmd.OutOrStdout(), out.Format, keyPair{args[0], public, path, path + ".pub"})
		},
	}
	cmd.Flags().StringVar(&path, "out", "", "the file for the private key; required")
	return cmd
}

// keyPair is what "audit keygen" writes, except as text.
type keyPair struct {
	Name           string `json:"name"`
	PublicKey      string `json:"public_key"`
	PrivateKeyFile string `json:"private_key_file"`
	PublicKeyFile  string `json:"public_key_file"`
}

func (keyPair) Columns() []string {
	return []string{"name", "public_key", "private_key_file", "public_key_file"}
}

func (k keyPair) Cells() []string {
	return []string{k.Name, k.PublicKey, k.PrivateKeyFile, k.PublicKeyFile}
}

// keygen writes a new key to path and path.pub, or neither.
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

// writeNew writes a file that must not exist yet.
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
