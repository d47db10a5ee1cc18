package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fencekit/fencekit/internal/cli"
)

func newEpoch(out *cli.Output) *cobra.Command {
	e := &epochFlags{}
	cmd := cli.NewGroup("epoch", "Compare or raise the epoch of etcd and databases")
	e.register(cmd.PersistentFlags())
	cmd.PersistentPreRunE = e.prepare
	cmd.AddCommand(newEpochShow(e, out), newEpochBump(e, out))
	return cmd
}

// epochFlags are the flags of the commands about the epoch: one etcd, and every prefix and
// database that belong together.
type epochFlags struct {
	etcd      etcdFlags
	databases databasesFlags
	prefixes  []string
}

func (e *epochFlags) register(flags *pflag.FlagSet) {
	ofEtcd := pflag.NewFlagSet("etcd", pflag.ContinueOnError)
	ofEtcd.StringArrayVar(&e.prefixes, "etcd-prefix", []string{"fencekit"}, "Config.Prefix of the lockers; repeat it for all that use these databases")
	e.etcd.registerRest(ofEtcd)
	flags.AddFlagSet(ofEtcd)
	e.databases.register(flags, 5*time.Minute)
}

func (e *epochFlags) prepare(cmd *cobra.Command, _ []string) error {
	if err := cli.FillFromVariables(cmd.InheritedFlags()); err != nil {
		return err
	}
	if err := e.databases.prepare(); err != nil {
		return err
	}
	if len(e.databases.urls) == 0 {
		return cli.UsageErrorf("--database-url (FENCEKIT_DATABASE_URL) is required, once for each database that is written to under these locks")
	}
	return distinct("--etcd-prefix", e.prefixes)
}

// withPrefixes calls do for each prefix, one after another, until one fails.
func (e *epochFlags) withPrefixes(ctx context.Context, do func(context.Context, int, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.databases.timeout)
	defer cancel()
	for i, prefix := range e.prefixes {
		flags := e.etcd
		flags.prefix = prefix
		err := flags.withEtcd(ctx, func(ctx context.Context, client *clientv3.Client) error { return do(ctx, i, client) })
		if err != nil {
			return fmt.Errorf("etcd, prefix %s: %w", prefix, err)
		}
	}
	return nil
}
