package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/pflag"

	"github.com/fencekit/fencekit/internal/cli"
	"github.com/fencekit/fencekit/internal/doctor"
)

func writeFindings(w io.Writer, format cli.Format, found []doctor.Finding) error {
	if format == cli.FormatTable {
		_, err := io.WriteString(w, findingsText(found, cmp.Or(cli.TerminalWidth(w), cli.UsualWidth)))
		return err
	}
	return cli.WriteList(w, format, found)
}

// findingsText groups findings by severity. Commands are not wrapped, so that they can be copied.
func findingsText(found []doctor.Finding, width int) string {
	var b strings.Builder
	for _, severity := range doctor.Severities {
		of := ofSeverity(found, severity)
		if len(of) > 0 {
			fmt.Fprintf(&b, "%s\n\n", strings.ToUpper(string(severity)))
		}
		for _, f := range of {
			fmt.Fprintf(&b, "  %s  %s\n", f.ID, f.Server)
			for _, line := range [][2]string{{"seen", f.Seen}, {"why", f.Why}, {"fix", f.Fix}} {
				fmt.Fprintf(&b, "    %-6s%s\n", line[0], strings.ReplaceAll(wrapped(line[1], width-10), "\n", "\n          "))
			}
			for _, command := range f.Run {
				fmt.Fprintf(&b, "          %s\n", command)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func ofSeverity(found []doctor.Finding, severity doctor.Severity) []doctor.Finding {
	return slices.DeleteFunc(slices.Clone(found), func(f doctor.Finding) bool { return f.Severity != severity })
}

func wrapped(s string, width int) string {
	lines := strings.Split(text.WrapSoft(s, width), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func (d *doctorFlags) summary(r doctor.Report) string {
	servers := append([]string{"etcd was not examined"}, d.databases.names...)
	if d.asksEtcd {
		servers[0] = "etcd at " + strings.Join(d.etcd.endpoints, ",")
	}
	if len(servers) == 1 {
		servers = append(servers, "no database was examined")
	}
	var found []string
	for _, severity := range doctor.Severities {
		if n := len(ofSeverity(r.Findings, severity)); n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, severity))
		}
	}
	if len(found) == 0 {
		found = []string{"nothing found"}
	}
	return fmt.Sprintf("%s: %d checks, %s", strings.Join(servers, ", "), r.Checks, strings.Join(found, ", "))
}

func exitOf(found []doctor.Finding) int {
	for _, worst := range []struct {
		severity doctor.Severity
		code     int
	}{{doctor.Violated, cli.ExitViolated}, {doctor.NotReady, cli.ExitNotReady}, {doctor.Inconclusive, cli.ExitInconclusive}} {
		if len(ofSeverity(found, worst.severity)) > 0 {
			return worst.code
		}
	}
	return cli.ExitOK
}

// repeatedFlags are the flags of "doctor" that its findings' commands repeat, if they were given. Variables are
// for the commands to read themselves.
var repeatedFlags = []string{"etcd-endpoints", "etcd-prefix", "etcd-cacert", "etcd-cert", "etcd-key", "etcd-user", "etcd-password-file", "database-url", "schema"}

func (d *doctorFlags) repeatFlags(flags *pflag.FlagSet, found []doctor.Finding) {
	for _, f := range found {
		for i, command := range f.Run {
			f.Run[i] = d.repeated(flags, command, f.Server)
		}
	}
}

func (d *doctorFlags) repeated(flags *pflag.FlagSet, command, server string) string {
	if strings.HasPrefix(command, "ETCDCTL_") {
		return d.etcd.etcdctlVariables() + command
	}
	before, _, _ := strings.Cut(command, " -")
	words, root := strings.Fields(before), newRoot()
	if words[0] != root.Name() {
		return command
	}
	cmd, _, err := root.Find(words[1:])
	if err != nil {
		return command
	}
	text := cmd.CommandPath()
	rest := strings.TrimPrefix(command, text)
	for _, name := range repeatedFlags {
		own, given := cmd.Flag(name), flags.Lookup(name)
		if own == nil || !cli.IsGiven(given) || strings.Contains(command, " --"+name+" ") {
			continue
		}
		values := []string{given.Value.String()}
		switch name {
		case "etcd-endpoints":
			values = []string{strings.Join(d.etcd.endpoints, ",")}
		case "database-url": // that of the finding's server, or all where the command takes several
			values = nil
			for i, url := range d.databases.urls {
				if own.Value.Type() == "stringArray" || d.databases.names[i] == server {
					values = append(values, withoutPassword(url))
				}
			}
		}
		for _, value := range values {
			text += " --" + name + " " + doctor.ShellWord(value)
		}
	}
	return text + rest
}

// etcdctlVariables are the variables with which etcdctl reaches the same etcd: it takes no flag of which there
// is a variable. Where etcd has users, only root may do all that findings advise; etcdctl asks for the password.
func (e *etcdFlags) etcdctlVariables() (text string) {
	for _, f := range []struct{ name, value string }{{"CACERT", e.caCert}, {"CERT", e.cert}, {"KEY", e.key}} {
		if f.value != "" {
			text += "ETCDCTL_" + f.name + "=" + doctor.ShellWord(f.value) + " "
		}
	}
	if e.user != "" {
		text += "ETCDCTL_USER=root "
	}
	return text
}

var passwordWord = regexp.MustCompile(`(?i)\b(ssl)?password\s*=\s*('(\\.|[^'\\])*'|(\\.|\S)*)\s*`)

func withoutPassword(dsn string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return strings.TrimSpace(passwordWord.ReplaceAllString(dsn, ""))
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	if query.Has("password") || query.Has("sslpassword") {
		query.Del("password")
		query.Del("sslpassword")
		u.RawQuery = query.Encode()
	}
	return u.String()
}
