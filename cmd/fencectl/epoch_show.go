package main

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/epoch"
)

func newEpochShow(e *epochFlags, out *cli.Output) *cobra.Command {
	return &cobra.Command{
		Use:   "show [flags]",
		Short: "Compare etcd's epoch with the databases'",
		Long: `Show the epoch of etcd and of each database, and what keeps holders from
claiming:

  highest token  in etcd its revision, which no token that it issued exceeds; in
                 a database the token of its highest fence
  raised         when, by whom and why "epoch bump" last raised the database

The exit code is 1 if etcd and a database disagree so that claims are rejected,
as after a restore of etcd. Then stderr says what to run. Nothing is changed.

The etcd user needs the right to read PREFIX/epoch; the database role that of
the reader role ("fencectl migrate up --reader-role"). Every fence is read.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := e.read(cmd.Context())
			if err != nil {
				return err
			}
			return e.report(cmd, out, s)
		},
	}
}

// report prints the state, and returns what to do about it as an error.
func (e *epochFlags) report(cmd *cobra.Command, out *cli.Output, s epoch.State) error {
	rows := e.rows(s)
	return errors.Join(cli.WriteList(cmd.OutOrStdout(), out.Format, rows), adviceOn(rows))
}

func adviceOn(rows []epochRow) error {
	has := func(drift epoch.Drift) bool {
		return slices.ContainsFunc(rows, func(r epochRow) bool { return r.Drift == drift })
	}
	advice := ""
	switch {
	case has(epoch.NoEpoch):
		advice = "a key in etcd holds no epoch: run \"fencectl epoch bump --reason TEXT --trust databases\" with the same flags"
	case has(epoch.TooFar):
		advice = "etcd's epoch is higher than a database accepts. If it was mistyped, run \"fencectl epoch bump --reason TEXT --trust databases\" with the same flags; if it is right, with --trust etcd"
	case has(epoch.Absurd) && !has(epoch.Behind):
		advice = "a false grant has claimed the highest resource of a database, with a token that etcd doesn't reach for years: run \"fencectl epoch bump --reason TEXT\" with the same flags"
	case has(epoch.Behind), has(epoch.TokensLow):
		advice = "etcd is behind a database: it was restored, or it is another one. If it is the right one, run \"fencectl epoch bump --reason TEXT\" with the same flags"
	default:
		return nil
	}
	return &cli.ExitError{Code: cli.ExitViolated, Err: errors.New(advice)}
}
