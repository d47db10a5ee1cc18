# Ends and removes what belongs to the directory $2 of a server.
#
#   list    prints the processes whose working directory is in it
#   end     kills them, and removes the shared memory of a Postgres in its directory "data"
#   remove  waits for the end of standard input, and then removes all, the directory last
export LC_ALL=C ROOT="$2"
trap '' PIPE

# Elsewhere than on Linux a working directory is not to be had: there the command line has to name the directory.
# Postgres's children have other titles there, and end after their parent did.
list() {
    if [ -e /proc/self/cwd ]; then
        ls -l /proc/[0-9]*/cwd 2>/dev/null | sed 's,.* /proc/\([0-9]*\)/cwd -> \(.*\),\1 \2/,'
    else
        ps -axo pid=,command=
    fi | awk 'index($0, ENVIRON["ROOT"] "/") { print $1 }'
}

# Some may start others while they die.
end() {
    tries=0
    while pids=$(list) && [ -n "$pids" ]; do
        kill -KILL $pids 2>/dev/null
        tries=$((tries + 1))
        [ $tries -lt 200 ] || { echo "processes" $pids "don't end" >&2; exit 1; }
        sleep 0.05
    done
    # The seventh line has the key and the id of the System V segment, which a killed Postgres leaves behind.
    [ ! -f "$ROOT/data/postmaster.pid" ] || ipcrm -m "$(awk 'NR == 7 { print $2 }' "$ROOT/data/postmaster.pid")" 2>/dev/null || true
}

# A container has the directory's name. Docker may have created none, or removed it.
remove() {
    read -r _
    end
    if [ -e "$ROOT/docker" ]; then
        name=${ROOT##*/}
        said=$(docker rm --force --volumes "$name" 2>&1) || case $said in
            *"No such container"*) ;;
            *) echo "$said" >&2; exit 1 ;;
        esac
    fi
    rm -rf "$ROOT"
}

$1
