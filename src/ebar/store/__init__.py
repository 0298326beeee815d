"""What is kept on disk: one lock, one description, one fingerprint, one header, one way of writing.

    with open_store(folder, description=config, seed=0) as store:
        with store.stage("lambda", {"features": features, "tolerance": 0.01}) as stage:
            if not stage.done:
                stage.write("fitted.json", to_json(fit(seed=stage.seed)))
        fitted = json.loads(stage.read("fitted.json"))

A stage that was finished is read, one that was interrupted goes on, and one that was made from something else is
refused with the names of what differs.
"""
