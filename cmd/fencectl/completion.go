package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/doctor"
	"github.com/fencekit/fencekit/internal/epoch"
	"github.com/fencekit/fencekit/storage"
	"github.com/fencekit/fencekit/storage/postgres"
)

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a script that completes command lines in a shell",
		Long: `Print a script that completes commands, flags and some of their values. SHELL is
bash, zsh, fish or powershell. The shell's startup file should have the line:

  bash        source <(fencectl completion bash)
  zsh         source <(fencectl completion zsh)
  fish        fencectl completion fish | source
  powershell  fencectl completion powershell | Out-String | Invoke-Expression

Bash needs the package bash-completion. In zsh, compinit has to run first.`,
		Args:      cli.OneArg("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root, w := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(w, true)
			case "zsh":
				return root.GenZshCompletion(w)
			case "fish":
				return root.GenFishCompletion(w, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(w)
			}
			return cli.UsageErrorf("SHELL is %q, want bash, zsh, fish or powershell", args[0])
		},
	}
}

var fileFlags = []string{"out", "key", "log", "checkpoint", "proof", "export", "html", "continues", "continues-key", "etcd-cacert", "etcd-cert", "etcd-key", "etcd-password-file"}

func completeFlags(cmd *cobra.Command) {
	completions := map[string]cobra.CompletionFunc{}
	for name, words := range map[string][]string{
		"kind":   {string(storage.KindClaim), string(storage.KindWrite), string(storage.KindVoid), rejectionKind},
		"mode":   {string(postgres.ProtectAudit), string(postgres.ProtectEnforce)},
		"trust":  {string(epoch.Databases), string(epoch.Etcd)},
		"ignore": doctor.IDs(),
	} {
		completions[name] = cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
	}
	for _, name := range fileFlags {
		completions[name] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	}
	complete := func(f *pflag.Flag) {
		if completion, ok := completions[f.Name]; ok {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, completion) // it fails for an unknown flag only
		}
	}
	cmd.Flags().VisitAll(complete)
	cmd.PersistentFlags().VisitAll(complete)
	for _, below := range cmd.Commands() {
		completeFlags(below)
	}
}

func completeCommand(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}
