package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// Attempt is one place where a program was looked for in vain.
type Attempt struct {
	Where string
	Err   error
}

// NotFoundError says where a server's program was looked for and what was wrong there, in order.
type NotFoundError struct {
	Server   string
	Attempts []Attempt
	// Advice is the command that installs it, and what else may help.
	Advice string
}

func (e *NotFoundError) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "testenv: found no %s to run:", e.Server)
	for _, a := range e.Attempts {
		fmt.Fprintf(&text, "\n  %s: %v", a.Where, a.Err)
	}
	return text.String() + "\ninstall one: " + e.Advice
}

// Unwrap gives the reason of each attempt.
func (e *NotFoundError) Unwrap() []error {
	errs := make([]error, len(e.Attempts))
	for i, a := range e.Attempts {
		errs[i] = a.Err
	}
	return errs
}

// Installed is a program that packages install.
type Installed struct {
	Server string
	// Places are where it may be: a name is looked for on the PATH.
	Places []string
	// Arguments make it print its version. Default: --version.
	Arguments []string
	// Version matches what it prints then; its first group is the version.
	Version *regexp.Regexp
	// Usable says what is wrong with one that was found. Default: nothing.
	Usable func(path, version string) error
	Advice string
}

// Find returns the path and the version of the first program that is there. It fails with
// *NotFoundError if there is none.
func (p *Installed) Find(ctx context.Context) (path, version string, err error) {
	var attempts []Attempt
	for _, place := range p.Places {
		path, version, err := p.inspect(ctx, place)
		if err == nil {
			return path, version, nil
		}
		attempts = append(attempts, Attempt{place, err})
	}
	return "", "", &NotFoundError{Server: p.Server, Attempts: attempts, Advice: p.Advice}
}

func (p *Installed) inspect(ctx context.Context, place string) (path, version string, err error) {
	if path, err = exec.LookPath(place); err != nil {
		return "", "", errors.Unwrap(err)
	}
	arguments := p.Arguments
	if arguments == nil {
		arguments = []string{"--version"}
	}
	out, err := exec.CommandContext(ctx, path, arguments...).Output()
	if err != nil {
		return "", "", err
	}
	match := p.Version.FindStringSubmatch(string(out))
	if match == nil {
		return "", "", fmt.Errorf("%s %s says %q", path, strings.Join(arguments, " "), strings.TrimSpace(string(out)))
	}
	if p.Usable != nil {
		err = p.Usable(path, match[1])
	}
	return path, match[1], err
}

// Account is the user that Postgres and PgBouncer run as: that of this process, or
// another if that is root, as which they don't run.
type Account struct {
	name       string
	credential *syscall.Credential // nil: the user of this process
}

func (a *Account) String() string { return a.name }

// ServerAccount is the user of this process; for root it is the user postgres, or else
// the user nobody.
func ServerAccount() (*Account, error) {
	if os.Getuid() != 0 {
		return &Account{name: "user " + strconv.Itoa(os.Getuid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &Account{"user " + name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, errors.New("testenv: Postgres does not run as root, and there is no user postgres or nobody: run as an ordinary user")
}

// Own gives a file or directory to the account.
func (a *Account) Own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// Mkdir makes a directory that only the account can enter.
func (a *Account) Mkdir(dir string) error { return errors.Join(os.MkdirAll(dir, 0o700), a.Own(dir)) }

// WriteFile writes a file in such a directory, which it makes.
func (a *Account) WriteFile(dir, name string, text []byte) error {
	file := filepath.Join(dir, name)
	return errors.Join(a.Mkdir(dir), os.WriteFile(file, text, 0o600), a.Own(file))
}

// Command is a command run by the account in dir, which it has to be able to enter: the working directory of
// this process may be none.
func (a *Account) Command(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(Environ("PG", "LC_"), "LC_ALL=C")
	if a.credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	}
	return cmd
}
