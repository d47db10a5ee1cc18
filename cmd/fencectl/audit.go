package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/fencekit/fencekit/internal/cli"
)

func newAudit(out *cli.Output) *cobra.Command {
	d := &databaseFlags{}
	cmd := cli.NewGroup("audit", "Verify, explain and anchor the history")
	d.register(cmd.PersistentFlags(), time.Hour)
	cmd.PersistentPreRunE = d.prepare
	cmd.AddCommand(newAuditVerify(d, out), newAuditExport(d, out), newAuditWhy(d, out), newAuditReport(d, out), newAuditAnchor(d, out), newAuditKeygen(out), newAuditProve(out))
	return cmd
}
