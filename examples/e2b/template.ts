/** A template whose program is running already when a sandbox of it starts. */
import { Sandbox, Template, waitForPort } from "e2b";

const NAME = "example-started-server-ts";
const SERVER = `
import http.server, random
token = random.random()
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(str(token).encode())
    def log_message(self, *rest): pass
http.server.HTTPServer(("", 8000), Answer).serve_forever()
`;

const template = Template()
  .fromTemplate("base")
  .runCmd(`cat > /home/user/server.py <<'END'\n${SERVER}\nEND`)
  .setStartCmd("python3 /home/user/server.py", waitForPort(8000));
await Template.build(template, NAME);
const answers: string[] = [];
for (const _ of [1, 2]) {
  const sandbox = await Sandbox.create(NAME);
  answers.push((await sandbox.commands.run("curl -s http://localhost:8000")).stdout);
  await sandbox.kill();
}
console.log("both sandboxes have the same running program:", answers[0] === answers[1] && answers[0] !== "");
const headers = { "X-API-Key": process.env["E2B_API_KEY"]! };
const deleted = await fetch(`${process.env["E2B_API_URL"]}/templates/${NAME}`, { method: "DELETE", headers });
console.log("the template is deleted:", deleted.ok);
