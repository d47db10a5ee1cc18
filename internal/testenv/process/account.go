package process

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

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

// Own gives a directory to the account.
func (a *Account) Own(dir string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(dir, int(a.credential.Uid), int(a.credential.Gid))
}

// Command is a command run by the account in dir, which must be one that the
// account can enter: the working directory of this process may be none.
func (a *Account) Command(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append(Environ("PG", "LC_"), "LC_ALL=C")
	if a.credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	}
	return cmd
}
